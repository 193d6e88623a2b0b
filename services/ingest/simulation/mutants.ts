import { decodeIntent, encodeIntent } from '../delivery/intent.ts';
import { IDLE } from '../delivery/lane.ts';
import type { Ports, Store } from '../delivery/ports.ts';
import type { Mutation } from './process.ts';

/** The protocol with one rule taken out each. The simulation must find what the rule is for. */
export const mutants = {
  /** batches are not announced: the commit before a batch carries no metadata */
  'no-intent': {
    ports: (ports) => ({
      ...ports,
      commit: (offset, metadata) => ports.commit(offset, decodeIntent(metadata) === undefined ? metadata : IDLE),
    }),
  },
  /** every insert has a token of its own */
  'no-token': { token: 'of the insert' },
  /** a batch's end is committed before the batch is written, and the next owner goes on there */
  'end-before-insert': {
    ports: (ports) =>
      withStore(
        {
          ...ports,
          commit: (offset, metadata) => ports.commit((decodeIntent(metadata)?.last ?? offset - 1) + 1, IDLE),
        },
        {
          ledgerEnd: async () => {
            const end = await ports.store.ledgerEnd();
            const committed = await ports.committed(ports.group);
            if (committed === undefined || committed.offset - 1 <= (end?.last ?? -1)) return end;
            return {
              incarnation: 0,
              period: 0,
              group: ports.group,
              record: undefined,
              isClosed: false,
              ...end,
              last: committed.offset - 1,
            };
          },
        },
      ),
  },
  /** an announced batch is formed again with boundaries of the moment: here, its first record alone */
  'other-boundaries': {
    ports: (ports) => ({
      ...ports,
      committed: async (group) => {
        const committed = await ports.committed(group);
        const intent = decodeIntent(committed?.metadata);
        return committed === undefined || intent === undefined
          ? committed
          : { ...committed, metadata: encodeIntent({ ...intent, last: intent.first }) };
      },
    }),
  },
  /** a lane goes on, and commits, whatever has become of its partition */
  'no-fence': { fence: 'off' },
  /** a process writes although its group may have gone on without it long ago */
  'no-doubt': { ports: (ports) => ({ ...ports, isMember: () => true }) },
  /** rows beyond the ledger's end are not looked for */
  'no-orphans': {
    ports(ports) {
      let isTaking = false;
      return withStore(ports, {
        // a takeover reads the ledger's end, then the orphan rows; the look at an open batch reads orphan rows alone
        async ledgerEnd() {
          isTaking = true;
          return await ports.store.ledgerEnd();
        },
        async orphans(incarnation, from, period) {
          if (!isTaking) return await ports.store.orphans(incarnation, from, period);
          isTaking = false;
          return [];
        },
      });
    },
  },
  /** the rollups of a batch that was found in part are not rebuilt */
  'no-repair': { ports: (ports) => withStore(ports, { requestRepair: async () => {} }) },
  /** a topic is the same as long as its name is */
  'no-record': {
    ports: (ports) =>
      withStore(ports, {
        ledgerEnd: async () => {
          const end = await ports.store.ledgerEnd();
          return end === undefined ? end : { ...end, record: undefined };
        },
      }),
  },
  /** a log that ends before the ledger was recreated */
  'no-comparison': {
    ports: (ports) =>
      withStore(ports, {
        marks: async (_, before) => (before > 0 ? [{ offset: 0, time: -1, checksum: 0 }] : []),
      }),
  },
  /** a record of which nothing is stored is one of another log, also where retention may have taken its row */
  'no-retention': {
    ports: (ports) =>
      withStore(ports, {
        compare: async (incarnation, records) =>
          (await ports.store.compare(incarnation, records)).map((as) => (as === 'nothing' ? 'another' : as)),
      }),
  },
  /** a partition belongs to whoever consumes it */
  'no-owner': {
    ports: (ports) =>
      withStore(ports, {
        register: async () => ({
          ...(await ports.store.register()),
          // beyond the first epoch, or the lane would wait for the one that the ledger names
          owner: { group: ports.group, epoch: 2, former: undefined, isSettled: true },
        }),
      }),
  },
  /** a claim is taken for settled at once: the one who made it has waited, if it lives */
  'no-settling': {
    ports: (ports) =>
      withStore(ports, {
        register: async (fresh) => {
          const register = await ports.store.register(fresh);
          return {
            ...register,
            owner: register.owner === undefined ? undefined : { ...register.owner, isSettled: true },
          };
        },
      }),
  },
  /** a batch is recovered by the rules of today */
  'other-rules': {
    ports: (ports) => ({
      ...ports,
      committed: async (group) => {
        const committed = await ports.committed(group);
        const intent = decodeIntent(committed?.metadata);
        if (committed === undefined || intent === undefined) return committed;
        return {
          ...committed,
          metadata: encodeIntent({ ...intent, rules: { ...intent.rules, evaluatedAt: ports.clock() } }),
        };
      },
    }),
  },
} as const satisfies { readonly [name: string]: Mutation };

function withStore(ports: Ports, store: Partial<Store>): Ports {
  return { ...ports, store: { ...ports.store, ...store } };
}
