import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ClickHouse, Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import type { Logger } from '../../../common/logger.ts';
import { testDecoder } from '../../../test/harness/avro.ts';
import { keepReplaysComplete } from './open-replays.ts';
import { statements } from '../store/statements.ts';

const sleeping = vi.hoisted(() => ({ rounds: 0 }));
// the next round comes at once, until there were enough of them
vi.mock('node:timers/promises', () => ({
  setTimeout: async () => {
    if (--sleeping.rounds <= 0) throw new Error('the signal has fired');
    return true;
  },
}));

const VALUE = '{"project":"p","timestamp":"2026-03-01T00:00:00Z"}';
let asked: string[];
let marked: string[];
let freshOf: (readonly string[])[];
let isFinished: boolean;
let said: string[];
let clickhouse: ClickHouse;
/** of the letter that is refused */
let isRowSeen: () => boolean;
let failing: (offset: string | undefined) => boolean;

beforeEach(() => {
  [asked, marked, said, freshOf, isFinished] = [[], [], [], [], true];
  failing = () => false;
  isRowSeen = () => false;
  const rowsOf = ({ sql, params = {}, fresh }: Read): object[] => {
    if (fresh !== undefined) freshOf.push(fresh.tables);
    const offset = params['offset'] === undefined ? undefined : String(params['offset']);
    if (failing(offset)) throw new Error('unavailable');
    if (sql === statements.openReplays)
      return ['1', '2', '3'].map((at) => ({ topic: 'auth_logs', incarnation: 0, partition: 0, offset: at }));
    if (sql === statements.deadLetter) {
      asked.push(offset!);
      // today's rules refuse the second one
      const value = Buffer.from(offset === '2' ? '[]' : VALUE).toString('hex');
      return [{ source: 'auth_logs', incarnation: 0, batch_last: 9, record_time: 0, key: null, headers: [], value }];
    }
    const announced = [{ evaluatedAt: Date.UTC(2026, 2, 1), period: 0 }];
    if (sql === statements.replayState)
      return [{ in_ledger: isFinished ? 1 : 0, period: 0, least_period: 0, announced }];
    return [{ rows: params['first'] === 2 && !isRowSeen() ? 0 : 1 }];
  };
  clickhouse = {
    read: async (read: Read) => ({
      body: Buffer.from(
        rowsOf(read)
          .map((row) => JSON.stringify(row))
          .join('\n'),
      ),
    }),
    execute: async ({ sql, params = {} }: Statement) => {
      if (sql === statements.markReplayed) marked.push(String(params['offset']));
    },
    killInsert: async () => {},
  } as unknown as ClickHouse;
});
afterEach(() => vi.clearAllMocks());

async function keep(rounds: number, signal = new AbortController().signal): Promise<void> {
  sleeping.rounds = rounds;
  const log = (fields: { offset?: string }, event: string): void => void said.push(`${event} ${fields.offset ?? ''}`);
  const logger = { info: log, warn: log } as unknown as Logger;
  const decoders = new Map([['auth_logs', testDecoder('auth_logs')]] as const);
  const clock = (): number => Date.UTC(2026, 2, 1);
  const options = { clickhouse, decoders, retentionDays: 90, maxEventBytes: 1_000, rawAvroTopics: [], clock };
  await keepReplaysComplete(options, logger, signal);
}

test('a letter that the rules of today refuse is tried once in an hour, and says so', async () => {
  await keep(120);
  expect(asked.filter((offset) => offset === '2')).toHaveLength(1);
  expect(said.filter((line) => line.startsWith('replay_not_completed'))).toEqual(['replay_not_completed 2']);
});

test('a letter that was refused before its row was seen is completed after an hour', async () => {
  isRowSeen = () => asked.filter((offset) => offset === '2').length > 1;
  await keep(121);
  expect(asked.filter((offset) => offset === '2')).toHaveLength(2);
  expect(said.filter((line) => line.endsWith('2'))).toEqual(['replay_not_completed 2', 'replay_completed 2']);
});

test('letters that are tried again are marked again', async () => {
  await keep(3);
  expect(marked).toEqual(['1', '3', '1', '3', '1', '3']);
});

test('a letter that cannot be completed now keeps no other from it, and is tried again', async () => {
  let failures = 0;
  failing = (offset) => offset === '1' && failures++ === 0;
  await keep(2);
  expect(said.filter((line) => !line.endsWith('2'))).toEqual([
    'replay_not_completed 1',
    'replay_completed 3',
    'replay_completed 1',
    'replay_completed 3',
  ]);
});

test('a letter whose batch is not finished is tried again', async () => {
  isFinished = false;
  await keep(2);
  expect(asked).toEqual(['1', '2', '3', '1', '2', '3']);
  expect(said).toEqual([]);
});

test('letters are read where all rows are that replicas acknowledged: one that is not there yet would be given up', async () => {
  await keep(1);
  expect(freshOf).toContainEqual(['dead_letter_replays']);
  expect(freshOf.filter((tables) => tables.includes('dead_letters'))).toHaveLength(3);
});

test('while ClickHouse does not answer, it is asked again', async () => {
  let failures = 0;
  failing = () => failures++ < 2;
  await keep(3);
  expect(said.slice(0, 3)).toEqual(['replay_not_completed ', 'replay_not_completed ', 'replay_completed 1']);
});

test('when the process stops, no further letter begins, and an error says nothing', async () => {
  const stopping = new AbortController();
  failing = (offset) => {
    if (offset === '1') stopping.abort();
    return offset === '1';
  };
  await keep(1, stopping.signal);
  expect([asked, said]).toEqual([[], []]);
});
