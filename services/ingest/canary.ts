import { randomUUID } from 'node:crypto';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { insertSettings } from '../../common/clickhouse/pinned-settings.ts';
import { EXIT_CONFIG, StartError } from '../../common/errors.ts';

/**
 * Before ingest takes a message it tries, on tables of its own (clickhouse/migrations/*_create_canary.sql), what every
 * guarantee rests on: the same batch under the same token counts once, in its table and in the view behind it, and a
 * batch that fails at its last row leaves none. Both ways of inserting are tried.
 */
const STRUCTURE = 'number UInt64, text String';
/** Of a batch of the canary: several blocks where a server cuts blocks small. */
const ROWS = 64;
/** SETTING_CONSTRAINT_VIOLATION, READONLY */
const REFUSED_SETTING = new Set<number | undefined>([452, 164]);

/** Throws StartError, one line with what to change, where this ClickHouse does not store exactly once. */
export async function proveExactlyOnce(clickhouse: ClickHouse): Promise<void> {
  const run = randomUUID();
  const attempts = ['rows', 'select'] as const;
  try {
    await Promise.all(
      attempts.flatMap((way) => [
        twice(clickhouse, way, `${run}:${way}`),
        failing(clickhouse, way, `${run}:${way}:failing`),
      ]),
    );
  } catch (error) {
    if (error instanceof ClickHouseError && REFUSED_SETTING.has(error.code)) {
      throw new StartError(
        `ClickHouse at ${clickhouse.where} refuses a setting that exactly-once delivery needs: ${firstLine(error.message)}; remove its constraint, or \`readonly\`, from the profile of our user`,
        { cause: error, exitCode: EXIT_CONFIG },
      );
    }
    throw error;
  }
  const found = await select<{ attempt: string; rows: number; counted: number }>(
    clickhouse,
    `
    SELECT attempt, toFloat64(sum(in_table)) AS rows, toFloat64(sum(in_view)) AS counted
    FROM
    (
        SELECT attempt, 1 AS in_table, 0 AS in_view FROM canary WHERE startsWith(attempt, {run:String})
        UNION ALL
        SELECT attempt, 0 AS in_table, number AS in_view FROM canary_counts WHERE startsWith(attempt, {run:String})
    )
    GROUP BY attempt`,
    { run },
  );
  for (const way of attempts) {
    const { rows = 0, counted = 0 } = found.find((f) => f.attempt === `${run}:${way}`) ?? {};
    if (rows !== ROWS || counted !== ROWS)
      throw refuse(
        clickhouse,
        `a batch of ${ROWS} rows that was inserted twice under one token (${way}) is there ${rows / ROWS} times, and counted ${counted / ROWS} times by a view`,
      );
  }
  const left = found.find((f) => f.attempt.endsWith(':failing'));
  if (left !== undefined)
    throw refuse(clickhouse, `a batch that failed at its last row left ${Math.max(left.rows, left.counted)} rows`);
}

function refuse({ where, version }: ClickHouse, what: string): StartError {
  const settings = [
    'insert_deduplicate',
    'deduplicate_insert',
    'deduplicate_insert_select',
    'deduplicate_blocks_in_dependent_materialized_views',
    'async_insert',
    'max_insert_block_size',
  ] as const;
  return new StartError(
    `ClickHouse ${version} at ${where} does not store exactly once: ${what}; let our user's profile allow ${settings.map((name) => `${name} = ${insertSettings[name]}`).join(', ')}, or use a version that the README lists`,
    { exitCode: EXIT_CONFIG },
  );
}

/** The same batch, the same token, one after the other. */
async function twice(clickhouse: ClickHouse, way: 'rows' | 'select', attempt: string): Promise<void> {
  const settings = { insert_deduplication_token: attempt };
  for (let time = 0; time < 2; time++) {
    if (way === 'rows')
      await clickhouse.insertRows({
        table: 'canary',
        columns: ['attempt', 'number', 'text'],
        pieces: batch(attempt),
        settings,
      });
    else
      await clickhouse.insert({
        sql: 'INSERT INTO canary (attempt, number, text) SELECT {attempt:String}, number, text FROM frames',
        structure: STRUCTURE,
        frames: batch(),
        params: { attempt },
        settings,
      });
  }
}

/** A batch whose last row cannot be read, and one whose last row is refused. */
async function failing(clickhouse: ClickHouse, way: 'rows' | 'select', attempt: string): Promise<void> {
  const settings = { insert_deduplication_token: attempt };
  const failed =
    way === 'rows'
      ? clickhouse.insertRows({
          table: 'canary',
          columns: ['attempt', 'number', 'text'],
          pieces: batch(attempt).map((row, i) => (i === ROWS - 1 ? row.subarray(0, -1) : row)),
          settings,
        })
      : clickhouse.insert({
          sql: 'INSERT INTO canary (attempt, number, text) SELECT {attempt:String}, number + throwIf(number = {last:UInt64}), text FROM frames',
          structure: STRUCTURE,
          frames: batch(),
          params: { attempt, last: ROWS - 1 },
          settings,
        });
  try {
    await failed;
  } catch (error) {
    // as it has to: CANNOT_READ_ALL_DATA or its like, FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
    if (error instanceof ClickHouseError && [33, 32, 3, 27, 117, 395].includes(error.code ?? 0)) return;
    throw error;
  }
  throw refuse(clickhouse, `a batch that fails at its last row (${way}) was taken`);
}

/** RowBinary of STRUCTURE, with the attempt before each row where it is given. */
function batch(attempt?: string): Buffer[] {
  const before = attempt === undefined ? Buffer.alloc(0) : text(attempt);
  return Array.from({ length: ROWS }, (_, number) => {
    const row = Buffer.alloc(8);
    row.writeBigUInt64LE(BigInt(number));
    return Buffer.concat([before, row, text(`canary ${number}`)]);
  });
}

/** shorter than 128 bytes, whose length is one byte */
function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([Buffer.byteLength(value)]), Buffer.from(value)]);
}

function firstLine(message: string): string {
  return (message.split('\n', 1)[0] ?? '').replace(/^Code: \d+\. DB::Exception: /, '').replace(/ \(version .*$/, '');
}
