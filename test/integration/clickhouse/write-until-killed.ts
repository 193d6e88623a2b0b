import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { row } from '../../harness/clickhouse-rowbinary.ts';

/**
 * Child process: opens the folder, inserts until it is killed, and writes the number of each finished insert to stdout.
 */
const clickhouse = await openEmbedded({ dataDir: process.argv[2]!, logger: testLogger });
await clickhouse.execute({
  sql: 'CREATE TABLE IF NOT EXISTS written (n UInt64, a String) ENGINE = MergeTree ORDER BY n',
});
process.stdout.write('open\n');
for (let n = 0; ; n++) {
  await clickhouse.insertRows({ table: 'written', columns: ['n', 'a'], pieces: [row(n, 'x'.repeat(100_000))] });
  process.stdout.write(`${n}\n`);
}
