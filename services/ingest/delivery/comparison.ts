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
  /** the newest mark of one life before this offset */
  mark(life: number, before: number): Promise<RecordMark | undefined | Ended>;
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
    const found = await compareLife(compare, life, from, bound);
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
  compare: Compare,
  life: number,
  from: number,
  bound: number,
): Promise<{ readonly differsFrom: number | undefined; readonly begin: number } | Ended> {
  /** the newest mark that the log has */
  let same: number | undefined;
  /** the oldest mark that it has not */
  let begin = bound;
  /** another record is there; a missing record (compaction) proves nothing */
  let isOther = false;
  for (let next = from; next < begin;) {
    const middle = next + Math.floor((begin - next) / 2);
    const mark = await compare.mark(life, middle + 1);
    if (typeof mark === 'string') return mark;
    if (mark === undefined || mark.offset < next) {
      next = middle + 1;
      continue;
    }
    const fetched = await compare.peek(mark.offset);
    if (typeof fetched === 'string') return fetched;
    const record = fetched.records.find((r) => r.offset === mark.offset);
    if (record !== undefined && isAt(record, mark)) {
      same = mark.offset;
      next = middle + 1;
    } else {
      begin = mark.offset;
      isOther = record !== undefined;
    }
  }
  if (same === undefined && (isOther || begin === bound)) {
    const [before, any] = [await compare.mark(life, begin), await compare.mark(life, Number.MAX_SAFE_INTEGER)];
    if (typeof before === 'string') return before;
    if (typeof any === 'string') return any;
    if (before === undefined && any !== undefined) return { differsFrom: undefined, begin };
  }
  for (let at = same === undefined ? from : same + 1; at < bound;) {
    const fetched = await compare.peek(at);
    if (typeof fetched === 'string') return fetched;
    const differsFrom = await compare.firstDifference(
      life,
      fetched.records.filter((r) => r.offset < bound),
    );
    if (typeof differsFrom === 'string') return differsFrom;
    if (differsFrom !== undefined) return { differsFrom, begin };
    at = fetched.to + 1;
  }
  return { differsFrom: bound, begin };
}
