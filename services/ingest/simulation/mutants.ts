import { decodeIntent, encodeIntent } from '../intent.ts';
import { IDLE } from '../lane.ts';
import type { Mutation } from './process.ts';

/** The protocol with one rule taken out each. The simulation must find what the rule is for. */
export const mutants = {
  /** batches are not announced: the commit before a batch carries no metadata */
  'no-intent': {
    ports: (ports) => ({ ...ports, commit: (offset, metadata) => ports.commit(offset, decodeIntent(metadata) === undefined ? metadata : IDLE) }),
  },
  /** every insert has a token of its own */
  'no-token': { token: 'of the insert' },
  /** a batch's end is committed before the batch is written, and the next owner goes on there */
  'end-before-insert': {
    ports: (ports) => ({
      ...ports,
      commit: (offset, metadata) => ports.commit((decodeIntent(metadata)?.last ?? offset - 1) + 1, IDLE),
      store: {
        ...ports.store,
        ledgerEnd: async () => {
          const end = await ports.store.ledgerEnd();
          const committed = await ports.committed();
          if (committed === undefined || committed.offset - 1 <= (end?.last ?? -1)) return end;
          return { incarnation: 0, judgedAt: 0, record: undefined, isClosed: false, ...end, last: committed.offset - 1 };
        },
      },
    }),
  },
  /** an announced batch is formed again with boundaries of the moment: here, its first record alone */
  'other-boundaries': {
    ports: (ports) => ({
      ...ports,
      committed: async () => {
        const committed = await ports.committed();
        const intent = decodeIntent(committed?.metadata);
        return committed === undefined || intent === undefined ? committed : { ...committed, metadata: encodeIntent({ ...intent, last: intent.first }) };
      },
    }),
  },
  /** a lane goes on, and commits, whatever has become of its partition */
  'no-fence': { fence: 'off' },
  /** a process writes although its group may have gone on without it long ago */
  'no-doubt': { ports: (ports) => ({ ...ports, isMember: () => true }) },
  /** tokens are trusted for ever */
  'old-token': { ports: (ports) => ({ ...ports, store: { ...ports.store, tokenIsKept: async () => true } }) },
  /** messages that the engine refuses become dead letters after the rest of their batch, not before */
  'refused-last': {
    ports: (ports) => ({
      ...ports,
      store: {
        ...ports.store,
        insert: async (batch, present = new Set()) => {
          const refused = await ports.store.insert(batch, present);
          if (refused.length === 0) return [];
          await ports.store.insert(batch, new Set([...present, ...refused.map((r) => r.offset)]));
          await ports.store.refuse(batch, refused);
          return [];
        },
      },
    }),
  },
  /** rows beyond the ledger's end are not looked for */
  'no-strays': { ports: (ports) => ({ ...ports, store: { ...ports.store, strays: async () => [] } }) },
  /** a topic is the same as long as its name is */
  'no-record': {
    ports: (ports) => ({
      ...ports,
      store: {
        ...ports.store,
        ledgerEnd: async () => {
          const end = await ports.store.ledgerEnd();
          return end === undefined ? end : { ...end, record: undefined };
        },
      },
    }),
  },
} as const satisfies { readonly [name: string]: Mutation };
