import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../common/clickhouse/errors.ts';

/**
 * Returns a ClickHouse that may still be connecting or migrating. Until it is open, every statement fails with 210
 * NETWORK_ERROR, which callers see as 503.
 */
export function whenOpen(opening: Promise<ClickHouse>): ClickHouse {
  let opened: ClickHouse | undefined;
  void (async () => {
    opened = await opening;
  })().catch(() => undefined);
  const get = (): ClickHouse => {
    if (opened === undefined) throw refusal(210, 'ClickHouse is not connected yet');
    return opened;
  };
  return {
    get where() {
      return opened?.where ?? 'not connected yet';
    },
    get version() {
      return opened?.version ?? 'unknown';
    },
    get writers() {
      return opened?.writers ?? 0;
    },
    get shards() {
      return opened?.shards;
    },
    get shard() {
      return opened?.shard;
    },
    ping: async () => await get().ping(),
    read: async (read) => await get().read(read),
    execute: async (statement) => await get().execute(statement),
    insertRows: async (rows) => await get().insertRows(rows),
    killInsert: async (queryId) => await get().killInsert(queryId),
    rights: async (wanted) => await get().rights(wanted),
    close: async () => await opened?.close(),
  };
}
