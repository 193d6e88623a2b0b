import { INTEGERS_AS_TEXT, select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Clock } from '../../common/clock.ts';
import type { SourceName } from '../../common/sources.ts';
import type { AvroDecoder } from './avro/decoder.ts';
import { encodeFrames, FRAME_STRUCTURE, type Frame } from './frames.ts';
import { tokenOf } from './intent.ts';
import { strayOf, type Batch, type Store, type Stray } from './lane.ts';
import { createMessageReader, refusedFrame } from './message.ts';
import type { IngestMetrics } from './metrics.ts';
import { probeOf } from './probe.ts';
import { refusedOf, type Refused } from './refused.ts';
import { dryRunOf, mappingOf, statements } from './statements.ts';

/** The deduplication window of every target, in parts (clickhouse/migrations). A batch is one part per day it touches. */
const DEDUPLICATION_WINDOW = 10_000;
/** A token is trusted while fewer batches than this were written after it: a fifth of the window, for batches of several days. */
const TOKEN_TRUSTED_BATCHES = DEDUPLICATION_WINDOW / 5;

/** Clocks of processes and server may differ by this, milliseconds. A batch judged further in the server's future says nothing about when it was written. */
const CLOCK_SKEW_MS = 5_000;

/** Of the engine's words about a message it refuses: they may repeat the statement. Characters. */
const DETAIL_LENGTH = 300;

export interface StoreOptions {
  readonly clickhouse: ClickHouse;
  readonly source: SourceName;
  readonly topic: string;
  readonly partition: number;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  readonly avro: AvroDecoder;
  readonly metrics: IngestMetrics;
  readonly clock: Clock;
}

/** The tables of one partition: see Store for what each function promises. */
export function createStore({ clickhouse, source, topic, partition, retentionDays, maxEventBytes, avro, metrics, clock }: StoreOptions): Store {
  const mappings = { usual: mappingOf(source, 'usual'), exact: mappingOf(source, 'exact') };
  const dryRun = dryRunOf(source);
  const messages = createMessageReader(avro, maxEventBytes);
  const where = { topic, partition };

  return {
    async ledgerEnd() {
      const [row] = await select<{ incarnation: number; last: string; judged_at: string; end_offset: string | null; end_record_time: string; end_checksum: number | null; closes: boolean }>(clickhouse, statements.ledgerEnd, where, INTEGERS_AS_TEXT);
      if (row === undefined) return undefined;
      return {
        incarnation: row.incarnation,
        last: Number(row.last),
        judgedAt: Number(row.judged_at),
        record: row.end_offset === null || row.end_checksum === null ? undefined : { offset: Number(row.end_offset), time: Number(row.end_record_time), checksum: row.end_checksum },
        isClosed: row.closes,
      };
    },

    strays,

    async tokenIsKept(judgedAt) {
      const [row] = await select<{ batches: string; tables_made: string; now: string }>(clickhouse, statements.batchesSince, { source, since: judgedAt - CLOCK_SKEW_MS }, INTEGERS_AS_TEXT);
      // the engine waits for the disk with its parts, never with the file of its tokens
      const writtenSince = ((await clickhouse.machineStartedAt()) ?? 0) + CLOCK_SKEW_MS;
      return Number(row!.batches) < TOKEN_TRUSTED_BATCHES && Number(row!.tables_made) <= judgedAt && writtenSince <= judgedAt && judgedAt <= Number(row!.now) + CLOCK_SKEW_MS;
    },

    schemaIds: (records) => messages.schemaIds(records),

    async insert(batch, present) {
      const token = tokenOf(topic, partition, batch);
      const refused = await insertUnder(token, batch, present);
      if (present === undefined || refused.length > 0) return refused;
      // the engine notes a token before its part is in its place: where it was killed between the two, the token keeps out rows that never came
      for (let again = 1; ; again++) {
        const offsets = new Set((await strayOf({ strays }, batch))?.offsets);
        if (batch.records.every((r) => r.value === null || offsets.has(r.offset))) return [];
        const more = await insertUnder(`${token}:again:${again}`, batch, offsets);
        if (more.length > 0) return more;
      }
    },

    async refuse(batch, refused) {
      const details = new Map(refused.map(({ offset, detail }) => [offset, detail]));
      const token = `${tokenOf(topic, partition, batch)}:refused:${refused[0]!.offset}`;
      for (let again = 0; ; again++) {
        const frames = batch.records.filter((r) => details.has(r.offset)).map((r) => refusedFrame(r, details.get(r.offset)!));
        await insertFrames(mappings.exact, batch, again === 0 ? token : `${token}:again:${again}`, frames);
        // as after an insert: a token may be all that a killed engine kept
        for (const offset of (await strayOf({ strays }, batch))?.deadLetters ?? []) details.delete(offset);
        if (details.size === 0) return;
      }
    },

    async record(entry) {
      await clickhouse.execute({
        sql: statements.recordBatch,
        params: {
          ...where,
          source,
          incarnation: entry.incarnation,
          first: entry.first,
          last: entry.last,
          null_values: entry.nullValues,
          gap: entry.gap,
          judged_at: entry.judgedAt,
          end_offset: entry.end?.offset ?? null,
          end_record_time: entry.end?.time ?? -1,
          end_checksum: entry.end?.checksum ?? null,
          closes: entry.closes,
        },
        // no token: written twice it counts once, and one that the engine noted before it was killed would keep out the row that never came
        settings: { async_insert: 0, insert_deduplicate: 0 },
      });
    },
  };

  async function strays(incarnation: number, from: number, judgedSince: number): Promise<Stray[]> {
    const found = await select<{ last: string; judged_at: string; offsets: string[]; dead_letters: string[] }>(clickhouse, statements.strays, { ...where, source, incarnation, from, judged_since: judgedSince }, INTEGERS_AS_TEXT);
    return found.map((row) => ({ last: Number(row.last), judgedAt: Number(row.judged_at), offsets: row.offsets.map(Number), deadLetters: row.dead_letters.map(Number) }));
  }

  async function insertUnder(token: string, batch: Batch, present: ReadonlySet<number> | undefined): Promise<readonly Refused[]> {
    const records = batch.records.filter((r) => r.value !== null && present?.has(r.offset) !== true);
    if (records.length === 0) return [];
    const frames = await messages.frames(records, batch.schemaIds ?? []);
    const done = metrics.insertSeconds.startTimer({ source });
    // where it is rejected nothing of the batch is written: the SELECT threw (throwIf of envelope/judged.sql, or the engine) before its only block
    if (await rejectionOf(insertFrames(mappings.usual, batch, token, frames)) !== undefined) {
      const exact = Array.from(frames, withProbe);
      const rejection = await rejectionOf(insertFrames(mappings.exact, batch, token, exact));
      if (rejection !== undefined) {
        const found = await refusedOf(exact, async (some) => (await rejectionOf(insertFrames(dryRun, batch, undefined, some)))?.message.slice(0, DETAIL_LENGTH));
        if (found.length === 0) throw rejection;
        return found.map(({ item, detail }) => ({ offset: item.record.offset, detail }));
      }
    }
    done();
    metrics.events.inc({ source }, records.length);
    metrics.batchEvents.observe(records.length);
    const newest = records.reduce((max, r) => Math.max(max, r.time), -1);
    if (newest >= 0) metrics.freshness.set({ source }, (clock() - newest) / 1000);
    return [];
  }

  /** token: undefined = the statement writes nothing */
  async function insertFrames(sql: string, batch: Batch, token: string | undefined, frames: Iterable<Frame>): Promise<void> {
    await clickhouse.insert({
      sql,
      structure: FRAME_STRUCTURE,
      frames: encodeFrames(frames),
      params: {
        ...where,
        incarnation: batch.incarnation,
        batch_last: batch.last,
        judged_at: new Date(batch.judgedAt).toISOString().replace('T', ' ').slice(0, 23),
        retention_days: retentionDays,
      },
      ...(token === undefined ? {} : { settings: { insert_deduplication_token: token }, queryId: token }),
    });
  }
}

/** For the exact way: see envelope/exact.sql. */
export function withProbe(frame: Frame): Frame {
  return frame.reason === '' ? { ...frame, probe: probeOf(frame.value) } : frame;
}

/** Why the engine refuses what the statement was given; undefined = it was executed. Any other error is thrown. */
export async function rejectionOf(statement: Promise<void>): Promise<ClickHouseError | undefined> {
  try {
    await statement;
    return undefined;
  } catch (error) {
    if (error instanceof ClickHouseError && error.kind === 'reject') return error;
    throw error;
  }
}
