import { describe, expect, test } from 'vitest';
import { checksum, formOf } from './record.ts';

const form = (value: string | Buffer, maxEventBytes = 100) => formOf(Buffer.from(value), maxEventBytes, false);

describe('the form of a message', () => {
  test.each([['{}'], ['{'], [' \t\r\n {"a":1}'], ['{}{}']])('%j goes on as JSON', (value) => {
    expect(form(value)).toBe('json');
  });
  test.each([
    ['', 'empty'],
    [' \n\t\r', 'white space only'],
    ['[1]', 'first byte 0x5b'],
    ['"a"', 'first byte 0x22'],
    ['1', 'first byte 0x31'],
    ['null', 'first byte 0x6e'],
    ['\u{feff}{}', 'first byte 0xef'],
    ['\v{}', 'first byte 0x0b'],
  ])('%j is not an event: %s', (value, detail) => {
    expect(form(value)).toEqual({ reason: 'not_an_event', detail });
  });
  test('Avro is known by its first bytes, in a topic of raw datums by the topic', () => {
    expect(form(Buffer.from([0xc3, 0x01, 1]))).toBe('singleObject');
    expect(form(Buffer.from([0xc3, 0x02, 1]))).toMatchObject({ detail: 'first byte 0xc3' });
    expect(form(Buffer.from([0x00, 0, 0, 0, 1]))).toBe('confluent');
    for (const value of ['{}', ' ', '\0', '[1]']) expect(formOf(Buffer.from(value), 100, true)).toBe('raw');
  });
  test('the size is looked at first, and the limit itself is allowed', () => {
    expect(form('{}', 2)).toBe('json');
    expect(form('[1]', 2)).toEqual({ reason: 'too_large', detail: '3 bytes' });
    expect(formOf(Buffer.alloc(3), 2, true)).toMatchObject({ reason: 'too_large' });
  });
});

test('the checksum is CRC-32 of the value, 0 for none', () => {
  const record = { offset: 0, time: 0, key: null, headers: [] };
  expect(checksum({ ...record, value: Buffer.from('123456789') })).toBe(0xcbf43926);
  expect(checksum({ ...record, value: null })).toBe(0);
  // of a larger record, another KAFKA_MAX_DECOMPRESSED_BYTES keeps more
  const large = Buffer.alloc(40 * 1024 * 1024, 'x');
  expect(checksum({ ...record, value: large.subarray(0, 32 * 1024 * 1024) })).toBe(
    checksum({ ...record, value: large }),
  );
});
