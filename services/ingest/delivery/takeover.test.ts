import { expect, test } from 'vitest';
import type { Intent } from './intent.ts';
import type { LedgerEnd, OrphanRows } from './ports.ts';
import { planOwnership, planTakeover, type Facts, type Ownership, type OwnershipPlan, type Plan } from './takeover.ts';

const MARK = { offset: 4, time: 104, checksum: 7 };
const RULES = {
  version: 1,
  evaluatedAt: 777,
  retentionDays: 90,
  maxEventBytes: 1,
  rawAvro: false,
  schemaIds: [],
  period: 0,
};

const end = (last: number, rest: Partial<LedgerEnd> = {}): LedgerEnd => ({
  incarnation: 0,
  last,
  period: 0,
  group: 'ours',
  record: MARK,
  isClosed: false,
  ...rest,
});
const intent = (first: number, last: number, rest: Partial<Intent> = {}): Intent => ({
  incarnation: 0,
  first,
  last,
  rules: RULES,
  ...rest,
});
const orphan = (last: number, offsets: number[], rest: Partial<OrphanRows> = {}): OrphanRows => ({
  incarnation: 0,
  last,
  evaluatedAt: 777,
  offsets,
  deadOffsets: [],
  minTimestamp: undefined,
  ...rest,
});

const FACTS: Facts & Ownership = {
  group: 'ours',
  end: undefined,
  owner: { group: 'ours', epoch: 1, former: undefined, isSettled: true },
  ownerHasMembers: false,
  intents: [],
  orphans: [],
  low: 0,
  high: 100,
  atEnd: undefined,
  compared: undefined,
};

/**
 * A plan in a few words: `incarnation:next, batches to recover and to close as first-last@evaluatedAt (! = announced),
 * what is dropped, what is met again`.
 */
function brief(plan: OwnershipPlan | Plan): string {
  if (plan.kind === 'wait_for_group') return `wait for ${plan.group}`;
  if (plan.kind === 'settle') return `settle ${plan.epoch}`;
  if (plan.kind === 'claim') return `claim ${plan.epoch}${plan.former === undefined ? '' : ` from ${plan.former}`}`;
  if (plan.kind === 'compare')
    return `compare ${plan.incarnation} from ${plan.from}${plan.lifeEnded === 'yes' ? '' : ` before ${plan.to}, perhaps the same`}`;
  const batches = (of: typeof plan.recover): string =>
    of.map((b) => `${b.first}-${b.last}@${b.evaluatedAt}${b.intent === undefined ? '' : '!'}`).join(' ');
  return [
    `${plan.incarnation}:${plan.next}`,
    ...(plan.recover.length > 0 ? [`recover ${batches(plan.recover)}`] : []),
    ...(plan.close.length > 0 ? [`close ${batches(plan.close)}`] : []),
    ...(plan.dropped.length > 0 ? [`drop ${plan.dropped.map((i) => `${i.first}-${i.last}`).join(' ')}`] : []),
    ...(plan.expected === undefined ? [] : [`meet ${plan.expected.offset}`]),
  ].join(', ');
}

test.each<[string, Partial<Facts & Ownership>, string]>([
  // groups
  ['a partition that nobody ever had is claimed', { owner: undefined }, 'claim 1'],
  ['one that our group wrote before there was a register is claimed', { owner: undefined, end: end(4) }, 'claim 1'],
  [
    'one of a group that has members is waited for',
    { owner: { group: 'theirs', epoch: 3, former: undefined, isSettled: true }, ownerHasMembers: true },
    'wait for theirs',
  ],
  [
    'one of a group without members is claimed from it',
    { owner: { group: 'theirs', epoch: 3, former: undefined, isSettled: true } },
    'claim 4 from theirs',
  ],
  [
    'one that only the ledger knows of another group is waited for',
    { owner: undefined, end: end(4, { group: 'theirs' }), ownerHasMembers: true },
    'wait for theirs',
  ],
  [
    'and claimed when that has no members',
    { owner: undefined, end: end(4, { group: 'theirs' }) },
    'claim 1 from theirs',
  ],
  [
    'one that another member of our group has claimed from theirs is settled, whoever claimed it',
    { owner: { group: 'ours', epoch: 4, former: 'theirs', isSettled: false } },
    'settle 5',
  ],
  ['and so is one whose former group only the ledger knows', { end: end(4, { group: 'theirs' }) }, 'settle 2'],
  ['settled, it is taken', { owner: { group: 'ours', epoch: 5, former: 'theirs', isSettled: true } }, '0:0'],

  // where it goes on
  ['never taken: the first offset', { low: 3 }, '0:3'],
  ['in the ledger: at its end, whatever is committed', { end: end(4) }, '0:5, meet 4'],
  ['its last record is gone from Kafka', { end: end(4), low: 9 }, '0:5'],
  ['no record yet in this life', { end: end(4, { record: undefined }) }, '0:5'],
  ['the log ends right behind the ledger', { end: end(4), high: 5 }, '0:5, meet 4'],

  // announced
  ['announced and not begun', { end: end(4), intents: [intent(5, 6)] }, '0:5, recover 5-6@777!, meet 4'],
  [
    'announced and written in part',
    { end: end(4), intents: [intent(5, 6)], orphans: [orphan(6, [5])] },
    '0:5, recover 5-6@777!, meet 4',
  ],
  ['announced in both groups', { end: end(4), intents: [intent(5, 6), intent(5, 6)] }, '0:5, recover 5-6@777!, meet 4'],
  [
    'announced in both groups, not at the same time, and not begun: the newer one may still be sent',
    { end: end(4), intents: [intent(5, 6, { rules: { ...RULES, evaluatedAt: 700 } }), intent(5, 6)] },
    '0:5, recover 5-6@777!, drop 5-6, meet 4',
  ],
  [
    'announced in both groups, not at the same time, and the older one is written in part',
    {
      end: end(4),
      intents: [intent(5, 6), intent(5, 6, { rules: { ...RULES, evaluatedAt: 700 } })],
      orphans: [orphan(6, [5], { evaluatedAt: 700 })],
    },
    '0:5, recover 5-6@700!, drop 5-6, meet 4',
  ],
  ['announced and in the ledger already', { end: end(6), intents: [intent(5, 6)] }, '0:7, meet 4'],
  [
    'announced beyond a restored ledger, nothing there',
    { end: end(4), intents: [intent(7, 9)] },
    '0:5, drop 7-9, meet 4',
  ],
  [
    'announced beyond a restored ledger, rows there',
    { end: end(4), intents: [intent(7, 9)], orphans: [orphan(6, [5], { evaluatedAt: 700 }), orphan(9, [8])] },
    '0:5, recover 5-6@700 7-9@777!, meet 4',
  ],
  [
    'announced beyond a restored ledger, its own rows there: its batch begins after the ledger',
    { end: end(4), intents: [intent(6, 8)], orphans: [orphan(8, [7])] },
    '0:5, recover 5-8@777!, meet 4',
  ],
  ['announced, and the ledger is gone', { intents: [intent(7, 9)] }, '0:0, drop 7-9'],
  [
    'announced first of all, its first records gone from Kafka',
    { intents: [intent(0, 6)], low: 5 },
    '0:0, recover 0-6@777!',
  ],
  [
    'announced under another moment than the rows that are there',
    { end: end(4), intents: [intent(5, 6)], orphans: [orphan(6, [5], { evaluatedAt: 600 })] },
    '0:5, recover 5-6@600, drop 5-6, meet 4',
  ],

  // the announcement is lost
  ['rows of one batch', { end: end(4), orphans: [orphan(6, [6])] }, '0:5, recover 5-6@777, meet 4'],
  [
    'only dead letters of it',
    { end: end(4), orphans: [orphan(6, [], { deadOffsets: [5] })] },
    '0:5, recover 5-6@777, meet 4',
  ],
  [
    'rows of several, by their ends and never by a clock',
    { end: end(4), orphans: [orphan(6, [5], { evaluatedAt: 900 }), orphan(8, [8], { evaluatedAt: 100 })] },
    '0:5, recover 5-6@900 7-8@100, meet 4',
  ],
  [
    'rows of a replay beside those of its batch',
    { end: end(4), orphans: [orphan(6, [5]), orphan(6, [6], { evaluatedAt: 900 })] },
    '0:5, recover 5-6@777, meet 4',
  ],
  ['before anything is in the ledger', { low: 6, orphans: [orphan(6, [4, 5])] }, '0:4, recover 4-6@777'],

  // idle for longer than the ledger is kept (common/ledger-days.ts): it has forgotten the partition
  ['the ledger expired, and so did the records of Kafka: the end of the log', { low: 100 }, '0:100'],
  ['the ledger expired, and the records of Kafka did not: they are read again', { low: 3 }, '0:3'],
  [
    'the ledger expired, and rows did not: each batch is taken up with what is there',
    { orphans: [orphan(19, [10, 12]), orphan(49, [20, 49])], low: 50 },
    '0:10, recover 10-19@777 20-49@777',
  ],
  [
    'the ledger expired, and rows of two lives did not: the former life is closed',
    { orphans: [orphan(9, [5]), orphan(19, [15], { incarnation: 1 })], low: 20 },
    '1:15, recover 15-19@777, close 5-9@777',
  ],

  // another life
  ['a log that ends before the ledger is compared', { end: end(9), high: 2 }, 'compare 0 from 0'],
  ['so is one that ends right before the last record of the ledger', { end: end(4), high: 4 }, 'compare 0 from 0'],
  ["so is one with another record at the ledger's end", { end: end(4), atEnd: 'another' }, 'compare 0 from 0'],
  [
    'so is one that ends before what was announced',
    { end: end(4), intents: [intent(5, 20)], high: 10 },
    'compare 0 from 0',
  ],
  [
    'so is one that ends before rows that are there',
    { end: end(4), orphans: [orphan(20, [20])], high: 10, low: 3 },
    'compare 0 from 3',
  ],
  [
    'one without a record at any mark may be the same: it is compared up to the end of the ledger',
    { end: end(9), atEnd: 'nothing', low: 3 },
    'compare 0 from 3 before 10, perhaps the same',
  ],
  ['but not if it ends before the ledger', { end: end(9), atEnd: 'nothing', high: 2 }, 'compare 0 from 0'],
  [
    'it is the same if no other record was found: it goes on after the ledger',
    { end: end(9), atEnd: 'nothing', compared: { incarnation: 0, differsFrom: 10 } },
    '0:10',
  ],
  [
    'and another one if one was found',
    { end: end(9), atEnd: 'nothing', compared: { incarnation: 0, differsFrom: 6 } },
    '1:6',
  ],
  ['also at its end', { end: end(4), atEnd: 'nothing', compared: { incarnation: 0, differsFrom: 4 } }, '1:4'],
  [
    'nothing in common: a new life from its start',
    { end: end(9), high: 2, low: 1, compared: { incarnation: 0, differsFrom: undefined } },
    '1:1',
  ],
  [
    'the same but shorter: a new life from where it differs',
    { end: end(9), high: 7, compared: { incarnation: 0, differsFrom: 7 } },
    '1:7',
  ],
  [
    'what was announced in the old one is dropped',
    { end: end(4), intents: [intent(5, 20)], high: 10, compared: { incarnation: 0, differsFrom: undefined } },
    '1:0, drop 5-20',
  ],
  [
    'what was written in the old one is closed',
    { end: end(4), orphans: [orphan(9, [7])], high: 2, compared: { incarnation: 0, differsFrom: undefined } },
    '1:0, close 5-9@777',
  ],
  [
    'but not what was announced after it, of which nothing was written',
    {
      end: end(4),
      intents: [intent(10, 20)],
      orphans: [orphan(9, [7])],
      high: 2,
      compared: { incarnation: 0, differsFrom: undefined },
    },
    '1:0, close 5-9@777, drop 10-20',
  ],
  [
    'of a life that is not in the ledger, from where it was announced',
    {
      end: end(4),
      intents: [intent(3, 6, { incarnation: 1 }), intent(0, 4, { incarnation: 2 })],
      orphans: [orphan(6, [5], { incarnation: 1 }), orphan(4, [2], { incarnation: 2 })],
    },
    '2:0, recover 0-4@777!, close 3-6@777!, drop 3-6',
  ],
  [
    'a closed one has a next one, although nothing of it is in the ledger',
    { end: end(4, { isClosed: true }) },
    'compare 0 from 0',
  ],
  [
    'a closed one that was compared',
    { end: end(4, { isClosed: true }), compared: { incarnation: 0, differsFrom: 3 } },
    '1:3',
  ],
  ['announced in the next one', { end: end(4), intents: [intent(3, 8, { incarnation: 1 })] }, '1:3, recover 3-8@777!'],
  [
    'rows in the next one, its first records gone',
    {
      end: end(4),
      orphans: [orphan(3, [0, 2], { incarnation: 1 })],
      low: 2,
      compared: { incarnation: 0, differsFrom: undefined },
    },
    '1:0, recover 0-3@777',
  ],
  [
    'rows in the next one: where it began is known from the one before',
    { end: end(4), orphans: [orphan(3, [2], { incarnation: 1 })] },
    'compare 0 from 0',
  ],
])('%s', (_, facts, plan) => {
  const known = { ...FACTS, ...facts };
  expect(brief(planOwnership(known) ?? planTakeover(known))).toBe(plan);
});
