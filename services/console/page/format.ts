const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
] as const;

/** Returns a duration in its largest unit: 850 ms, 4.2 s, 12 min. */
export function duration(ms: number): string {
  const [unit, size] = UNITS.find(([, of]) => ms >= of) ?? ['ms', 1];
  const value = ms / size;
  return `${value < 10 && unit !== 'ms' ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** Returns 1,234 or 0.25: whole numbers from 100 on. */
export function number(value: number): string {
  return (Math.abs(value) >= 100 ? whole : fine).format(value);
}

/** Returns 12.3K, for axes and tiles. */
export function compact(value: number): string {
  return Math.abs(value) < 1000 ? fine.format(value) : short.format(value);
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(share === 0 || share === 1 ? 0 : 1)} %`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} bytes`;
  const kib = count / 1024;
  return kib < 1024 ? `${kib.toFixed(1)} KiB` : `${(kib / 1024).toFixed(1)} MiB`;
}

export type Zone = 'utc' | 'local';

const pad = (value: number, length = 2): string => String(value).padStart(length, '0');

/** Returns 2026-03-01 09:00:00.123456 for an instant in unix microseconds, without trailing zeros of the second. */
export function timestamp(micros: number, zone: Zone): string {
  const at = new Date(Math.floor(micros / 1000));
  const fraction = pad(((micros % 1_000_000) + 1_000_000) % 1_000_000, 6).replace(/(000){1,2}$/, '');
  const [y, mo, d, h, mi, s] =
    zone === 'utc'
      ? [
          at.getUTCFullYear(),
          at.getUTCMonth(),
          at.getUTCDate(),
          at.getUTCHours(),
          at.getUTCMinutes(),
          at.getUTCSeconds(),
        ]
      : [at.getFullYear(), at.getMonth(), at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds()];
  return `${y}-${pad(mo + 1)}-${pad(d)} ${pad(h)}:${pad(mi)}:${pad(s)}${fraction === '' ? '' : `.${fraction}`}`;
}

/** Returns the same for an instant in ISO 8601. */
export const instant = (iso: string, zone: Zone): string => timestamp(Date.parse(iso) * 1000, zone);

/** Returns the unix milliseconds of what a `datetime-local` field holds. NaN if it is empty. */
export const pickedAt = (picked: string, zone: Zone): number => Date.parse(zone === 'utc' ? `${picked}Z` : picked);

/** Returns hh:mm:ss of an instant in unix milliseconds, after its date if that is not today. */
export function clock(ms: number, zone: Zone): string {
  const at = timestamp(ms * 1000, zone).slice(0, 19);
  const today = timestamp(Date.now() * 1000, zone).slice(0, 10);
  return at.startsWith(today) ? at.slice(11) : at;
}

/** Returns a message as a sentence. */
export const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.?$/, '.');

/** Returns the same instant in the service's notation, to the microsecond. */
export function isoMicros(micros: number): string {
  return `${timestamp(micros, 'utc').replace(' ', 'T')}Z`;
}

/** Returns the text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Returns `12 stored, 3 still unknown_schema`. */
export function outcomeText(outcomes: Readonly<Record<string, number>>): string {
  const parts = Object.entries(outcomes).map(
    ([outcome, count]) => `${count.toLocaleString('en')} ${outcome === 'stored' ? '' : 'still '}${outcome}`,
  );
  return parts.length === 0 ? 'none yet' : parts.join(', ');
}
