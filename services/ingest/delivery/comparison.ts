import type { Fetched } from './inbox.ts';
import { checksum, type Record } from '../evaluate/record.ts';
import type { Ended, RecordMark, StoredAs } from './ports.ts';
import type { Compared, Plan } from './takeover.ts';

/** A record's time may be any 64-bit integer; the ledger keeps what a number holds exactly. */
export function markOf(record: Record): RecordMark {
  const time = Math.max(Number.MIN_SAFE_INTEGER, Math.min(record.time, Number.MAX_SAFE_INTEGER));
  return { offset: record.offset, time, checksum: checksum(record) };
}

/** The record is the one that the mark was made of. */
export function isMarked(record: Record, mark: RecordMark): boolean {
  const { offset, time, checksum: of } = markOf(record);
  return offset === mark.offset && time === mark.time && of === mark.checksum;
}

/** What a comparison reads. Each function answers why the lane must stop, if it must. */
interface Reads {
  /** the newest mark of one life before this offset */
  mark(life: number, before: number): Promise<RecordMark | undefined | Ended>;
  /** the records of the log from this offset on */
  peek(at: number): Promise<Fetched | Ended>;
  /** what is stored of each of these records in this life */
  compare(life: number, records: readonly Record[]): Promise<readonly StoredAs[] | Ended>;
}

/**
 * Finds the first offset in the plan's range at which the log differs from what is stored. A log that was cut twice may
 * agree only with an older life. A record of which nothing is stored differs only if none follows that is stored: its
 * row may be past retention. It does not prove that the life is over; another record does.
 */
export async function compareLog(
  reads: Reads,
  { incarnation, from, to, lifeEnded }: Omit<Extract<Plan, { kind: 'compare' }>, 'kind'>,
): Promise<Compared | Ended> {
  for (let life = incarnation, bound = to; ; life--) {
    const found = await compareLife(reads, life, from, bound, lifeEnded === 'yes' || life < incarnation);
    if (typeof found === 'string') return found;
    const { differsFrom, begin } = found;
    if (differsFrom !== undefined || life === 0 || begin <= from) return { incarnation, differsFrom };
    bound = begin;
  }
}

/**
 * The same for one life, before `bound`. `differsFrom` is undefined if not even the first record of this life is in the
 * log before `bound`; `begin` is the offset of that record, or `bound`.
 */
async function compareLife(
  reads: Reads,
  life: number,
  from: number,
  bound: number,
  isOver: boolean,
): Promise<{ readonly differsFrom: number | undefined; readonly begin: number } | Ended> {
  /** the newest mark that the log has */
  let same: number | undefined;
  /** the oldest mark that it has not */
  let begin = bound;
  /** the oldest mark at which it has another record; a missing record (compaction) proves nothing */
  let other: number | undefined;
  for (let next = from; next < begin;) {
    const middle = next + Math.floor((begin - next) / 2);
    const mark = await reads.mark(life, middle + 1);
    if (typeof mark === 'string') return mark;
    if (mark === undefined || mark.offset < next) {
      next = middle + 1;
      continue;
    }
    const fetched = await reads.peek(mark.offset);
    if (typeof fetched === 'string') return fetched;
    const record = fetched.records.find((r) => r.offset === mark.offset);
    if (record !== undefined && isMarked(record, mark)) {
      same = mark.offset;
      next = middle + 1;
    } else {
      begin = mark.offset;
      if (record !== undefined) other = begin;
    }
  }
  // No mark of this life agrees with the log. At the oldest mark that was looked at stands another record, or none was
  // looked at. If this life has no mark before `begin`, it begins there or later. Then the two have nothing in common.
  if (same === undefined && (other === begin || begin === bound)) {
    const [before, any] = [await reads.mark(life, begin), await reads.mark(life, Number.MAX_SAFE_INTEGER)];
    if (typeof before === 'string') return before;
    if (typeof any === 'string') return any;
    if (before === undefined && any !== undefined) return { differsFrom: undefined, begin };
  }
  /** the first record after those that are stored */
  let differsFrom: number | undefined;
  const end = other ?? bound;
  for (let at = same === undefined ? from : same + 1; at < end;) {
    const fetched = await reads.peek(at);
    if (typeof fetched === 'string') return fetched;
    const records = fetched.records.filter((r) => r.offset < end);
    const stored = await reads.compare(life, records);
    if (typeof stored === 'string') return stored;
    for (const [i, { offset }] of records.entries()) {
      if (stored[i] === 'same') differsFrom = undefined;
      else if (stored[i] !== undefined) differsFrom ??= offset;
      if (stored[i] === 'another') return { differsFrom, begin };
    }
    at = fetched.to + 1;
  }
  return { differsFrom: isOver || other !== undefined ? (differsFrom ?? end) : bound, begin };
}
