import { expect, test } from 'vitest';
import type { Record } from '../evaluate/record.ts';
import { compareLog, markOf } from './comparison.ts';
import type { StoredAs } from './ports.ts';

/** a fetch returns so many records */
const FETCH = 2;

function recordsOf(names: string): Record[] {
  return names
    .split(' ')
    .map((name) => ({ offset: Number(name.slice(1)), time: 0, key: null, value: Buffer.from(name), headers: [] }));
}

/** What one life of the topic left: records by content and offset, the offsets of the ledger's marks, expired rows. */
interface Life {
  readonly stored: string;
  readonly marks: readonly number[];
  readonly expired?: number;
}

interface Row {
  readonly lives: readonly Life[];
  readonly log: string;
  readonly to: number;
  readonly ended?: 'yes' | 'perhaps';
  readonly differsFrom: number;
}

test.each<[string, Row]>([
  [
    'the last life has nothing of the log: it is compared with the one before, up to where that begins',
    {
      lives: [
        { stored: 'a0 a1 a2 a3', marks: [0, 3] },
        { stored: 'b2 b3', marks: [2, 3] },
      ],
      log: 'a0 a1 c2',
      to: 4,
      differsFrom: 2,
    },
  ],
  [
    'the ledger has no mark: by what is stored',
    {
      lives: [{ stored: 'a0 a1', marks: [] }],
      log: 'a0 x1',
      to: 2,
      differsFrom: 1,
    },
  ],
  [
    'of the last record only a mark is left: another record there proves that the life is over',
    {
      lives: [{ stored: 'a0 a1 a2', marks: [0, 2], expired: 2 }],
      log: 'a0 a1 x2',
      to: 3,
      ended: 'perhaps',
      differsFrom: 2,
    },
  ],
  [
    'of a record only a mark is left, which agrees',
    {
      lives: [{ stored: 'a0 a1 a2', marks: [0, 1, 2], expired: 1 }],
      log: 'a0 a1',
      to: 3,
      differsFrom: 3,
    },
  ],
])('%s', async (_, { lives, log, to, ended = 'yes', differsFrom }) => {
  const found = recordsOf(log);
  const storedIn = (life: number): Record[] => recordsOf(lives[life]!.stored);
  const compared = await compareLog(
    {
      async mark(life, before) {
        const offset = lives[life]!.marks.findLast((o) => o < before);
        const record = storedIn(life).find((r) => r.offset === offset);
        return record && markOf(record);
      },
      async peek(at) {
        const records = found.filter((r) => r.offset >= at).slice(0, FETCH);
        return { to: records.at(-1)?.offset ?? to, records: records.map((r) => ({ ...r, bytes: 1 })) };
      },
      compare: async (life, records) =>
        records.map(({ offset, value }): StoredAs => {
          const stored = storedIn(life).find((r) => r.offset === offset);
          if (stored === undefined || lives[life]!.expired === offset) return 'nothing';
          return stored.value!.equals(value!) ? 'same' : 'another';
        }),
    },
    { incarnation: lives.length - 1, from: 0, to, lifeEnded: ended },
  );
  expect(compared).toEqual({ incarnation: lives.length - 1, differsFrom });
});
