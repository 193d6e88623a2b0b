import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../common/clickhouse/errors.ts';

/**
 * Returns a ClickHouse that may not be used yet: it is connecting or migrating, or definitions are being checked. Until
 * then every statement fails with 210 NETWORK_ERROR, which callers see as 503.
 */
export function whenOpen(opening: Promise<ClickHouse>): ClickHouse {
  const refuse = async (): Promise<never> => {
    throw refusal(210, 'ClickHouse is not connected, or definitions are not checked yet');
  };
  const closed: ClickHouse = {
    where: 'not connected yet',
    version: 'unknown',
    writers: 0,
    ping: refuse,
    read: refuse,
    execute: refuse,
    insertRows: refuse,
    killInsert: refuse,
    rights: refuse,
    close: async () => {},
  };
  let now = closed;
  opening.then(
    (opened) => (now = opened),
    () => undefined,
  );
  return new Proxy(closed, { get: (_, name) => Reflect.get(now, name) as unknown });
}
