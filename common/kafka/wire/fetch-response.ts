import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { CHUNK_BYTES } from '../../unzip.ts';
import { decompressors } from './codecs.ts';
import {
  batchHeader,
  batchSize,
  HEADER_BYTES,
  recordReader,
  type BatchHeader,
  type Budget,
  type FetchedRecord,
} from './record-batch.ts';

export interface Place {
  readonly topic: string;
  readonly partition: number;
  /** first offset of the record batch */
  readonly offset: number;
  /** its last offset, if its header can be read */
  readonly lastOffset?: number | undefined;
}

export interface FetchOptions {
  /** offset from which a partition was asked for */
  readonly fetchOffset: (topic: string, partition: number) => number;
  /** how much a response may hold decompressed, and a record; bytes */
  readonly maxBytes: number;
  /** Called for a damaged record batch. Its partition stops there; the others continue. */
  readonly onUnreadable: (place: Place, error: Error) => void;
}

/** A response takes tens of milliseconds. Other work of this process must not wait for all of it. */
const YIELD_AFTER_MS = 4;

/** A partition that cannot be read would answer at once, again and again. */
const UNREADABLE_WAIT_MS = 1_000;

/**
 * Reads a Fetch response, version 11 (kafka.apache.org/protocol), into what kafkajs reads from it (its
 * src/protocol/requests/fetch/v11/response.js). Keeps at most about maxBytes of it, plus one record
 * batch while it is split. The rest is not given to kafkajs, which fetches it again. Every response with data yields at
 * least one record, or a later position.
 */
export async function decodeFetchResponse(raw: Buffer, { fetchOffset, maxBytes, onUnreadable }: FetchOptions) {
  const input = reader(raw);
  const clientSideThrottleTime = input.int32();
  const errorCode = input.int16();
  const sessionId = input.int32();
  const budget: Budget = { left: maxBytes, maxRecordBytes: maxBytes };
  let unreadable = 0;
  let given = 0;
  /**
   * the first place with bytes but without a result. It is a fault if the response gave nothing at all: a broker sends
   * the first record batch whole, however large it is
   */
  let cutOff: Place | undefined;
  const responses = [];
  for (let topics = input.int32(); topics > 0; topics--) {
    const topicName = input.string();
    const partitions = [];
    for (let count = input.int32(); count > 0; count--) {
      const partition = input.int32();
      const head = {
        partition,
        errorCode: input.int16(),
        highWatermark: input.int64(),
        lastStableOffset: input.int64(),
        lastStartOffset: input.int64(),
      };
      const aborted = abortedTransactions(input);
      const preferredReadReplica = input.int32();
      const records = input.bytes();
      const from = fetchOffset(topicName, partition);
      const taken: Taken = { from, records: [], whole: undefined, at: from, last: undefined, buffers: [] };
      try {
        await readPartition(records, aborted, budget, taken);
      } catch (error) {
        unreadable++;
        onUnreadable({ topic: topicName, partition, offset: taken.at, lastOffset: taken.last }, error as Error);
      }
      const messages = blocksOf(taken, Number(head.lastStableOffset));
      given += messages.length;
      if (records.length > 0 && messages.length === 0) cutOff ??= { topic: topicName, partition, offset: from };
      // aborted records are already left out
      partitions.push({ ...head, abortedTransactions: [], preferredReadReplica, messages });
    }
    responses.push({ topicName, partitions });
  }
  if (cutOff !== undefined && given + unreadable === 0) {
    unreadable++;
    onUnreadable(cutOff, new Error('a record batch is longer than its fetch response'));
  }
  if (unreadable > 0 && given === 0) await sleep(UNREADABLE_WAIT_MS);
  return { throttleTime: 0, clientSideThrottleTime, errorCode, sessionId, responses };
}

/** The result for one partition. */
interface Taken {
  /** where the fetch began */
  readonly from: number;
  readonly records: FetchedRecord[];
  /** the last offset of the record batches that were read completely */
  whole: number | undefined;
  /** first offset of the record batch that was read last, or where the fetch began */
  at: number;
  /** its last offset; undefined if its header cannot be read */
  last: number | undefined;
  /** memory that holds nothing but its records; free() gives it back */
  readonly buffers: ArrayBuffer[];
}

/**
 * The records that one fetch returned for one partition, shaped as a single message. kafkajs reads the offsets of
 * messages and passes the messages on.
 * The objects that kafkajs makes per record (offsets as text, BigInt, Long) cost as much as reading it.
 */
export type FetchedBlock = ReturnType<typeof blocksOf>[number];

function blocksOf({ records, whole, buffers }: Taken, stableEnd: number) {
  // a batch that the budget cut off, or that is damaged inside, still yields and covers the records before that
  const to = Math.max(whole ?? -1, records.at(-1)?.offset ?? -1);
  if (to < 0) return [];
  return [
    {
      /** as text; the block covers the offsets up to this one, including those without a record */
      offset: String(to),
      /** may be empty: the log has offsets without a record, up to this one */
      records,
      /** the partition's last stable offset: records from there on cannot be read yet */
      stableEnd,
      /**
       * Frees the memory of the records at once. No key or value can be read afterwards. Otherwise the garbage
       * collector frees it.
       */
      free: (): void => {
        for (const buffer of buffers) buffer.transfer(0);
      },
    },
  ];
}

/** Adds the partition's records. Throws at the first unreadable batch, after it added those before. */
async function readPartition(
  records: Buffer,
  aborted: readonly AbortedTransaction[],
  budget: Budget,
  taken: Taken,
): Promise<void> {
  const waiting = aborted.toSorted((a, b) => a.firstOffset - b.firstOffset);
  let turn = performance.now();
  const producers = new Set<bigint>();
  for (let at = 0; budget.left > 0;) {
    const size = batchSize(records, at);
    if (size === undefined) return;
    taken.at = Number(records.readBigInt64BE(at));
    taken.last = undefined;
    const batch = records.subarray(at, at + size);
    const header = batchHeader(batch);
    taken.last = header.lastOffset;
    if (header.lastOffset >= taken.from) {
      while (waiting[0] !== undefined && waiting[0].firstOffset <= header.lastOffset)
        producers.add(waiting.shift()!.producerId);
      if (header.control) producers.delete(header.producerId);
      const isLeftOut = header.control || (header.transactional && producers.has(header.producerId));
      if (!isLeftOut && !(await readBatch(header, batch.subarray(HEADER_BYTES), budget, taken))) return;
      taken.whole = header.lastOffset;
    }
    at += size;
    if (performance.now() - turn > YIELD_AFTER_MS) {
      await nextTurn();
      turn = performance.now();
    }
  }
}

/** Returns true if all records were read, false if the budget ended inside. */
async function readBatch(header: BatchHeader, data: Buffer, budget: Budget, taken: Taken): Promise<boolean> {
  const recordsOf = recordReader(header, taken.from, budget, taken.records);
  const { codec } = header;
  // records keep the memory that they are slices of. So no more is decompressed at once than may be kept, and
  // uncompressed records are copied: else they would keep the whole response.
  const whole =
    codec !== undefined
      ? await decompressors[codec].whole(data, budget.left).catch(() => undefined)
      : data.length > budget.left
        ? undefined
        : Buffer.from(data);
  if (whole === undefined) {
    for await (const chunk of codec === undefined ? copyInChunks(data) : decompressors[codec].inChunks(data))
      if (!(await pushInTurns(recordsOf, chunk))) break;
  } else {
    await pushInTurns(recordsOf, whole);
    // Node shares a buffer only if it is larger than what is read from it
    if (whole.length === whole.buffer.byteLength && whole.buffer instanceof ArrayBuffer)
      taken.buffers.push(whole.buffer);
  }
  if (!recordsOf.isDone() && budget.left > 0)
    throw new Error(`the record batch has fewer than its ${header.count} records`);
  return recordsOf.isDone();
}

/** Returns what `push` returns. Other work runs in between: a batch may have millions of records without a value. */
async function pushInTurns(recordsOf: ReturnType<typeof recordReader>, chunk: Buffer): Promise<boolean> {
  let isMore = recordsOf.push(chunk);
  while (isMore && recordsOf.isPaused()) {
    await nextTurn();
    isMore = recordsOf.push(NOTHING);
  }
  return isMore;
}

const NOTHING = Buffer.alloc(0);

function* copyInChunks(data: Buffer): Generator<Buffer> {
  for (let at = 0; at < data.length; at += CHUNK_BYTES) yield Buffer.from(data.subarray(at, at + CHUNK_BYTES));
}

interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: number;
}

function abortedTransactions(input: Reader): AbortedTransaction[] {
  const list: AbortedTransaction[] = [];
  for (let count = input.int32(); count > 0; count--)
    list.push({ producerId: BigInt(input.int64()), firstOffset: Number(input.int64()) });
  return list;
}

type Reader = ReturnType<typeof reader>;

function reader(data: Buffer) {
  let at = 0;
  const moved = (by: number): number => (at += by) - by;
  return {
    int16: () => data.readInt16BE(moved(2)),
    int32: () => data.readInt32BE(moved(4)),
    int64: () => String(data.readBigInt64BE(moved(8))),
    string(): string {
      const length = this.int16();
      return data.toString('utf8', moved(length), at);
    },
    bytes(): Buffer {
      const length = Math.max(0, this.int32());
      return data.subarray(moved(length), at);
    },
  };
}
