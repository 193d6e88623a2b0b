import { describe, expect, test } from 'vitest';
import { createRandom } from './random.ts';
import { isoMicros, notations, writeTimestamp } from './timestamps.ts';

const integer = /^(\d{10}|\d{13}|\d{16}|\d{19})$/;
const decimal = /^(\d{10})\.(\d+)$/;
const calendar = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?)?(?:Z|([+-])(\d\d):?(\d\d))?$/;

/** An independent reading of the documented grammar: unix microseconds, finer digits cut. */
function read(text: string): number {
  if (integer.test(text)) return Number((text.length === 10 ? `${text}000000` : text.padEnd(16, '0')).slice(0, 16));
  const seconds = decimal.exec(text);
  if (seconds) return Number(seconds[1]! + seconds[2]!.padEnd(6, '0').slice(0, 6));
  const parts = calendar.exec(text);
  if (!parts) throw new Error(`not in the grammar: ${text}`);
  const [
    ,
    year,
    month,
    day,
    hour = '0',
    minute = '0',
    second = '0',
    fraction = '',
    sign,
    zoneHours = '0',
    zoneMinutes = '0',
  ] = parts;
  const millis = Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
  const offset = (Number(zoneHours) * 60 + Number(zoneMinutes)) * (sign === '-' ? -1 : 1);
  return millis * 1000 + Number(fraction.padEnd(6, '0').slice(0, 6)) - offset * 60_000_000;
}

/** ordinary, an edge of every bucket, the last microsecond before midnight, a month and 29 February, small fractions */
const moments = [
  '2026-03-01T09:00:00.123456Z',
  '2026-03-01T00:00:00.000000Z',
  '2026-02-28T23:59:59.999999Z',
  '2028-02-29T23:59:59.999999Z',
  '2028-02-29T12:30:00.000001Z',
  '2025-12-31T23:59:59.000009Z',
].map(read);

describe.each(notations.filter((n) => n !== 'absent' && n !== 'null'))('%s', (notation) => {
  test('is in the grammar and says what it is said to say', () => {
    const random = createRandom(1);
    for (const micros of moments) {
      for (let i = 0; i < 20; i++) {
        const written = writeTimestamp(notation, micros, 0, random.uint32());
        const value: unknown = JSON.parse(written.json!);
        const text = typeof value === 'string' ? value : written.json!;
        expect(read(text), `from ${text}`).toBe(written.micros);
        expect(written.micros, `from ${text}`).toBeLessThanOrEqual(micros);
        expect(written.micros, `from ${text}`).toBeGreaterThan(micros - 2 * 86_400_000_000);
      }
    }
  });
});

test('number notations are JSON numbers, text notations are JSON strings', () => {
  for (const notation of notations) {
    const { json } = writeTimestamp(notation, moments[0]!, 0, 0);
    if (json === undefined || notation === 'null') continue;
    const isNumber = ['seconds', 'milliseconds', 'microseconds', 'nanoseconds', 'decimal_seconds'].includes(notation);
    expect(typeof JSON.parse(json), `of ${notation}`).toBe(isNumber ? 'number' : 'string');
  }
});

test('an absent or null timestamp stands for the record time', () => {
  expect(writeTimestamp('absent', moments[0]!, 1_772_355_600_123, 0)).toEqual({
    json: undefined,
    micros: 1_772_355_600_123_000,
  });
  expect(writeTimestamp('null', moments[0]!, 1_772_355_600_123, 0)).toEqual({
    json: 'null',
    micros: 1_772_355_600_123_000,
  });
});

test('isoMicros keeps all six digits', () => {
  for (const micros of moments) expect(read(`${isoMicros(micros)}Z`)).toBe(micros);
});
