import { expect, test } from 'vitest';
import type { ClickHouse, Read, Statement } from '../../common/clickhouse/clickhouse.ts';
import { testDecoder } from '../../test/harness/avro.ts';
import { replayDeadLetter, type ReplayOutcome } from './dead-letters.ts';
import { statements } from './statements.ts';

const VALUE = '{"project":"p","timestamp":"2026-03-01T00:00:00Z"}';

/** Replays a letter that was announced before, by rules that refuse it now. `rows`: how often it is a row. */
async function replay(rows: number): Promise<{ outcome: ReplayOutcome; did: (string | undefined)[] }> {
  const did: (string | undefined)[] = [];
  const state = { in_ledger: 1, period: 0, least_period: 0, evaluated_at: Date.UTC(2026, 2, 1), announced_period: 0 };
  const nameOf = ({ sql }: Statement): string | undefined =>
    Object.entries(statements).find(([, text]) => text === sql)?.[0];
  const clickhouse = {
    read: async (read: Read) => ({
      body: Buffer.from(JSON.stringify(nameOf(read) === 'replayState' ? state : { rows })),
    }),
    execute: async (statement: Statement) => void did.push(nameOf(statement)),
    insertRows: async () => void did.push('insert'),
    killInsert: async () => void did.push('kill'),
  } as unknown as ClickHouse;
  const outcome = await replayDeadLetter(
    {
      clickhouse,
      decoders: new Map([['auth_logs', testDecoder('auth_logs')]]),
      retentionDays: 90,
      maxEventBytes: VALUE.length - 1,
      rawAvroTopics: [],
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
      record: { offset: 7, time: 0, key: null, value: Buffer.from(VALUE), headers: [] },
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
