import { expect, test, vi } from 'vitest';
import type { ClickHouse, Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import type { CommandContext } from '../../../common/command/command.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { schemaOf, testDecoder, writerOf } from '../../../test/harness/avro.ts';
import { deadLettersCommand } from '../commands/dead-letters.ts';
import { replayAll, replayDeadLetter, type LetterPlace, type ReplayOutcome } from './dead-letters.ts';
import { statements } from '../store/statements.ts';

// replays take a pause between letters
vi.mock('node:timers/promises', () => ({ setTimeout: async () => {} }));

const VALUE = '{"project":"p","timestamp":"2026-03-01T00:00:00Z"}';

/**
 * Replays a letter that was announced before, by rules that refuse it now unless it is a raw `datum`. `rows`: how often
 * it is a row.
 */
async function replay(rows: number, datum?: Buffer): Promise<{ outcome: ReplayOutcome; did: (string | undefined)[] }> {
  const did: (string | undefined)[] = [];
  const state = {
    in_ledger: 1,
    period: 0,
    least_period: 0,
    announced: [{ evaluatedAt: Date.UTC(2026, 2, 1), period: 0 }],
  };
  const nameOf = ({ sql }: Statement): string | undefined =>
    Object.entries(statements).find(([, text]) => text === sql)?.[0];
  const clickhouse = {
    read: async (read: Read) => ({
      body: Buffer.from(JSON.stringify(nameOf(read) === 'replayState' ? state : { rows })),
    }),
    execute: async (statement: Statement) => void did.push(nameOf(statement)),
    async insertRows() {
      did.push('insert');
      rows++;
    },
    killInsert: async () => void did.push('kill'),
  } as unknown as ClickHouse;
  const outcome = await replayDeadLetter(
    {
      clickhouse,
      decoders: new Map([['auth_logs', testDecoder('auth_logs')]]),
      retentionDays: 90,
      maxEventBytes: datum === undefined ? VALUE.length - 1 : 1_000,
      rawAvroTopics: datum === undefined ? [] : ['auth_logs'],
      clock: () => Date.UTC(2026, 2, 1),
    },
    {
      topic: 'auth_logs',
      partition: 0,
      offset: '7',
      source: 'auth_logs',
      incarnation: 0,
      reason: 'too_large',
      detail: '',
      batchLast: 9,
      record: { offset: 7, time: 0, key: null, value: datum ?? Buffer.from(VALUE), headers: [] },
    },
  );
  return { outcome, did };
}

test('a letter that a killed replay made a row is marked, although the rules of today refuse it', async () => {
  expect(await replay(1)).toEqual({ outcome: 'stored', did: ['kill', 'requestRepairs', 'markReplayed'] });
});

test('a letter that is no row, and that the rules of today refuse, stays a letter', async () => {
  expect(await replay(0)).toEqual({ outcome: 'too_large', did: [] });
});

test('a letter of a topic of raw Avro datums is decoded as one', async () => {
  const datum = writerOf(schemaOf('auth_logs'))(JSON.parse(VALUE));
  expect(await replay(0, datum)).toEqual({ outcome: 'stored', did: ['insert', 'kill', 'markReplayed'] });
});

/** So many letters that today's rules refuse, too. `replayed`: the offsets of those that were evaluated, in order. */
function lettersOf(count: number): { readonly clickhouse: ClickHouse; readonly replayed: number[] } {
  const replayed: number[] = [];
  const rowsOf = ({ sql, params = {} }: Read): object[] => {
    if (sql === statements.deadLetters) {
      const next = Number(params['after_offset']) + 1;
      const size = Math.min(Number(params['limit']), count - next);
      return Array.from({ length: size }, (_, i) => ({
        topic: 'auth_logs',
        incarnation: 0,
        partition: 0,
        offset: String(next + i),
      }));
    }
    if (sql === statements.replayState) return [{ in_ledger: 1, period: 0, least_period: 0, announced: [] }];
    replayed.push(Number(params['offset']));
    if (replayed.length > count) throw new Error('a letter comes twice');
    return [
      { source: 'auth_logs', incarnation: 0, batch_last: count, record_time: 0, key: null, headers: [], value: '' },
    ];
  };
  const clickhouse = {
    read: async (read: Read) => ({
      body: Buffer.from(
        rowsOf(read)
          .map((row) => JSON.stringify(row))
          .join('\n'),
      ),
    }),
  } as unknown as ClickHouse;
  return { clickhouse, replayed };
}

test.each([0, 1, 499, 500, 501, 1_000, 1_001])('the command replays every one of %i letters, once', async (count) => {
  const { clickhouse, replayed } = lettersOf(count);
  const outcome = await replayAll(
    {
      clickhouse,
      decoders: new Map([['auth_logs', testDecoder('auth_logs')]]),
      retentionDays: 90,
      maxEventBytes: 1_000,
      rawAvroTopics: [],
      clock: () => 0,
    },
    { topic: 'auth_logs' },
  );
  expect(outcome).toEqual({ replayed: count === 0 ? {} : { not_an_event: count }, next: null });
  expect(replayed).toEqual(Array.from({ length: count }, (_, offset) => offset));
});

test.each([1, 4, 5])(
  'with a limit of two, calls one after the other replay every one of %i letters, once',
  async (count) => {
    const { clickhouse, replayed } = lettersOf(count);
    const context = { clickhouse, settings: readSettings({}) } as CommandContext;
    const pages: unknown[] = [];
    for (let after: LetterPlace | null | undefined; after !== null;) {
      const result = await deadLettersCommand.run(context, {
        action: 'replay_all',
        filter: { topic: 'auth_logs' },
        limit: 2,
        ...(after !== undefined && { after }),
      });
      if (!('replayed' in result)) throw new Error('no replay');
      pages.push(result.replayed);
      after = result.next;
    }
    expect(pages).toEqual(
      Array.from({ length: Math.ceil(count / 2) }, (_, page) => ({ not_an_event: Math.min(2, count - 2 * page) })),
    );
    expect(replayed).toEqual(Array.from({ length: count }, (_, offset) => offset));
  },
);
