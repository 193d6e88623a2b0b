/** 64 KiB to 8 MiB, doubled. */
const DOUBLING_SIZES: readonly number[] = Array.from({ length: 8 }, (_, i) => 64 * 1024 * 2 ** i);
/** Times below it say more about the machine than about the work, milliseconds. */
const NOISE_MS = 150;
/** Whatever the machine, 8 MiB take less. */
const MOST_MS = 5_000;
/** Twice the input may cost so many times as much: twice where the work is linear, four times where it is quadratic. */
const MAX_RATIO = 3.2;

/**
 * Returns where `work` takes more than in proportion to its input, undefined where it never does. It stops at the first
 * size that shows it:
 * a quadratic function would run for hours with 8 MiB.
 * Measured in CPU time of this process, so that other processes do not count; what seems too long is measured six
 * times more: once, three measurements in a row were far too long, of two functions that are linear.
 */
export async function superlinear<T>(
  make: (bytes: number) => T,
  work: (input: T) => unknown,
): Promise<string | undefined> {
  const times: number[] = [];
  for (const [i, bytes] of DOUBLING_SIZES.entries()) {
    const input = make(bytes);
    // over three doublings, since one of them may meet a garbage collection
    const limit = Math.max(NOISE_MS, (times[i - 3] ?? NOISE_MS) * MAX_RATIO ** 3);
    let ms = await cpuMs(() => work(input));
    for (let again = 0; again < 6 && ms > limit; again++) ms = Math.min(ms, await cpuMs(() => work(input)));
    if (ms > limit || ms > MOST_MS)
      return `${bytes} bytes take ${Math.round(ms)} ms, an eighth of it ${times[i - 3]?.toFixed(1)} ms`;
    times.push(ms);
  }
  return undefined;
}

async function cpuMs(work: () => unknown): Promise<number> {
  const from = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(from);
  return (user + system) / 1000;
}

/**
 * `unit` as often as it fits into so many bytes between `before` and `after`; a function makes a unit that differs each
 * time.
 */
export function filled(bytes: number, before: string, unit: string | ((i: number) => string), after: string): string {
  const room = bytes - before.length - after.length;
  if (typeof unit === 'string') return before + unit.repeat(Math.max(0, Math.floor(room / unit.length))) + after;
  const units: string[] = [];
  for (let length = 0, i = 0; ; i++) {
    const next = unit(i);
    if ((length += next.length) > room) return before + units.join('') + after;
    units.push(next);
  }
}
