import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { clickhouseTimestamp, parseTimestamp, unixMicroseconds } from './timestamp.ts';

const t = BigInt(Date.UTC(2026, 2, 1, 9, 0, 0)) * 1000n;

describe('parseTimestamp', () => {
  it.each([
    ['2026-03-01', t - 9n * 3_600_000_000n],
    ['2026-03-01Z', t - 9n * 3_600_000_000n],
    ['2026-03-01+01:00', t - 10n * 3_600_000_000n],
    ['2026-03-01T09:00', t],
    ['2026-03-01 09:00', t],
    ['2026-03-01T09:00Z', t],
    ['2026-03-01T09:00:00', t],
    ['2026-03-01T09:00:00.', t],
    ['2026-03-01T09:00:00.5', t + 500_000n],
    ['2026-03-01T09:00:00.123456', t + 123_456n],
    ['2026-03-01T09:00:00.1234569', t + 123_456n],
    ['2026-03-01T09:00:00.123456789Z', t + 123_456n],
    ['2026-03-01T11:30:00+02:30', t],
    ['2026-03-01T11:30:00+0230', t],
    ['2026-03-01T06:00:00-03:00', t],
    ['2026-03-01T11:00:00 02:00', t],
    ['2026-03-01 11:00:00.25 02:00', t + 250_000n],
    ['2024-02-29', BigInt(Date.UTC(2024, 1, 29)) * 1000n],
    ['1969-12-31T23:59:59.999999Z', -1n],
    ['0001-01-01', -62_135_596_800_000_000n],
  ])('%s', (text, micros) => {
    expect(parseTimestamp(text)).toBe(micros);
  });

  it.each([
    '',
    ' ',
    'now',
    '10:00',
    '2026',
    '2026-03',
    '2026-3-1',
    '2026-13-01',
    '2026-00-01',
    '2026-02-30',
    '2025-02-29',
    '2026-03-00',
    '2026-03-01T',
    '2026-03-01T9:00',
    '2026-03-01T24:00',
    '2026-03-01T09:60',
    '2026-03-01T09:00:60',
    '2026-03-01t09:00',
    '2026-03-01T09:00z',
    '2026-03-01T09:00:00.1234567890',
    '2026-03-01T09:00:00,5',
    '2026-03-01T09:00:00+2',
    '2026-03-01T09:00:00+24:00',
    '2026-03-01T09:00:00+02:60',
    '2026-03-01T09:00:00 +02:00',
    '2026-03-01T09:00 02:00',
    '2026-03-01T09:00:00 0200',
    '2026-03-01T09:00:00Z ',
    ' 2026-03-01',
    '1772355600',
    '2026-03-01T09:00:00Z\n',
    '２026-03-01',
    '2026-03-01T09:00:00+02:00Z',
    '+2026-03-01',
    '2026-03-01  09:00',
  ])('refuses %j', (text) => {
    expect(parseTimestamp(text)).toBeUndefined();
  });

  it('reads back what it prints, to the microsecond', () => {
    fc.assert(
      fc.property(fc.bigInt(0n, BigInt(Date.UTC(2149, 5, 6)) * 1000n), (micros) => {
        expect(parseTimestamp(clickhouseTimestamp(micros))).toBe(micros);
        expect(unixMicroseconds(clickhouseTimestamp(micros))).toBe(String(micros));
      }),
    );
  });

  it('agrees with Date on every notation that Date reads alike', () => {
    const date = fc.date({
      min: new Date('0001-01-01T00:00:00Z'),
      max: new Date('9999-12-31T00:00:00Z'),
      noInvalidDate: true,
    });
    fc.assert(
      fc.property(date, (d) => {
        expect(parseTimestamp(d.toISOString())).toBe(BigInt(d.getTime()) * 1000n);
      }),
    );
  });
});

it('clamps to what the store can hold', () => {
  expect(clickhouseTimestamp(-62_135_596_800_000_000n)).toBe('1970-01-01 00:00:00.000000');
  expect(clickhouseTimestamp(253_402_300_799_000_000n)).toBe('2149-06-06 23:59:59.999999');
});
