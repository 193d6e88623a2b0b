import type { Fetched } from '../inbox.ts';
import { checksum, type Record } from '../evaluate/record.ts';
import type { Ended, RecordMark } from './ports.ts';
import type { Compared } from './takeover.ts';

/** A record's time may be any 64-bit integer; the ledger keeps what a number holds exactly. */
export function markOf(record: Record): RecordMark {
  const time = Math.max(Number.MIN_SAFE_INTEGER, Math.min(record.time, Number.MAX_SAFE_INTEGER));
  return { offset: record.offset, time, checksum: checksum(record) };
}

export function isAt(record: Record, mark: RecordMark): boolean {
  const { offset, time, checksum: of } = markOf(record);
  return offset === mark.offset && time === mark.time && of === mark.checksum;
}

/** What a comparison reads. Each function answers why the lane must stop, if it must. */
interface Compare {
  /** first and last records of the batches of one life, ascending */
  marks(life: number): Promise<readonly RecordMark[] | Ended>;
  /** the records of the log from this offset on */
  peek(at: number): Promise<Fetched | Ended>;
  /** the first offset of these records whose content is not stored in this life */
  firstDifference(life: number, records: readonly Record[]): Promise<number | undefined | Ended>;
}

/**
 * Finds the first offset from `from` to `high` at which the log differs from what is stored. A log that was cut twice
 * may agree only with an older life.
 */
export async function compareLog(
  compare: Compare,
  { incarnation, from }: { readonly incarnation: number; readonly from: number },
  high: number,
): Promise<Compared | Ended> {
  for (let life = incarnation, bound = high; ; life--) {
    const marks = await compare.marks(life);
    if (typeof marks === 'string') return marks;
    const differsFrom = await compareLife(compare, life, marks, from, bound);
    if (typeof differsFrom === 'string') return differsFrom;
    const begin = marks[0]?.offset ?? 0;
    if (differsFrom !== undefined || life === 0 || begin <= from) return { incarnation, differsFrom };
    bound = Math.min(bound, begin);
  }
}

/** The same for one life, before `bound`. Undefined if not even the first record of this life is in the log. */
async function compareLife(
  compare: Compare,
  life: number,
  all: readonly RecordMark[],
  from: number,
  bound: number,
): Promise<number | undefined | Ended> {
  const marks = all.filter((m) => m.offset >= from && m.offset < bound);
  let same = -1;
  /** another record is at the offset of this life's first one; a missing record (compaction) proves nothing */
  let isOther = false;
  for (let after = marks.length; same + 1 < after;) {
    const middle = (same + after) >> 1;
    const mark = marks[middle]!;
    const fetched = await compare.peek(mark.offset);
    if (typeof fetched === 'string') return fetched;
    const record = fetched.records.find((r) => r.offset === mark.offset);
    if (record !== undefined && isAt(record, mark)) same = middle;
    else after = middle;
    if (middle === 0) isOther = record !== undefined && same < 0;
  }
  const isCut = all[0] !== undefined && all[0].offset >= bound;
  if (same < 0 && (isCut || (isOther && marks[0] === all[0]))) return undefined;
  for (let at = same < 0 ? from : marks[same]!.offset + 1; at < bound;) {
    const fetched = await compare.peek(at);
    if (typeof fetched === 'string') return fetched;
    const differs = await compare.firstDifference(
      life,
      fetched.records.filter((r) => r.offset < bound),
    );
    if (differs !== undefined) return differs;
    at = fetched.to + 1;
  }
  return bound;
}
