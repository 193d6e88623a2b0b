import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { fresh, select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { insertSettings } from '../../../common/clickhouse/pinned-settings.ts';
import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { RowBinary } from '../evaluate/row-binary.ts';

/**
 * Before ingest takes a message, it tries what every guarantee relies on, on tables of its own
 * (clickhouse/migrations/*_create_canary.sql): the same batch under the same token counts once, in its table and in the
 * view behind it, and a batch that fails at its last row leaves none.
 */
const INTO = { table: 'canary', columns: ['attempt', 'number', 'text'] } as const;
/** Rows of one batch: several blocks if a server cuts blocks small. */
const ROWS = 64;
const REFUSED_SETTING = new Set(['SETTING_CONSTRAINT_VIOLATION', 'READONLY']);
const CUT_ROW = new Set([
  'CANNOT_READ_ALL_DATA',
  'ATTEMPT_TO_READ_AFTER_EOF',
  'UNEXPECTED_END_OF_FILE',
  'CANNOT_PARSE_INPUT_ASSERTION_FAILED',
  'INCORRECT_DATA',
]);
const RETRY_MS = 1_000;

/** Throws StartError, one line with what to change, where this ClickHouse does not store exactly once. */
export async function proveExactlyOnce(clickhouse: ClickHouse): Promise<void> {
  const run = randomUUID();
  const failing = `${run}:failing`;
  try {
    await Promise.all([twice(clickhouse, run), incomplete(clickhouse, failing)]);
  } catch (error) {
    if (error instanceof ClickHouseError && REFUSED_SETTING.has(error.codeName)) {
      throw new StartError(
        `ClickHouse at ${clickhouse.where} refuses a setting that exactly-once delivery needs: ${firstLine(error.message)}; remove its constraint, or \`readonly\`, from the profile of our user`,
        { cause: error, exitCode: EXIT_CONFIG },
      );
    }
    throw error;
  }
  const found = await select<{ attempt: string; rows: number; counted: number }>(
    // the node that took the rows may be lost meanwhile
    fresh(clickhouse, ['canary', 'canary_counts']),
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
  const { rows = 0, counted = 0 } = found.find((f) => f.attempt === run) ?? {};
  if (rows !== ROWS || counted !== ROWS)
    throw refuse(
      clickhouse,
      `a batch of ${ROWS} rows that was inserted twice under one token is stored ${rows / ROWS} times, and a view counted it ${counted / ROWS} times`,
    );
  const left = found.find((f) => f.attempt === failing);
  if (left !== undefined)
    throw refuse(clickhouse, `a batch that failed at its last row left ${Math.max(left.rows, left.counted)} rows`);
}

/** The same, as soon as ClickHouse can be written: Keeper may be unavailable. Rejects when `signal` fires. */
export async function proveOnceAvailable(clickhouse: ClickHouse, logger: Logger, signal?: AbortSignal): Promise<void> {
  for (let failures = 1; ; failures++) {
    try {
      return await proveExactlyOnce(clickhouse);
    } catch (error) {
      if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
      if (failures % 10 === 1)
        logger.warn({ failures, during: 'the start', err: error.message }, 'clickhouse_unavailable');
    }
    await sleep(RETRY_MS, undefined, { signal });
  }
}

function refuse({ where, version }: ClickHouse, what: string): StartError {
  const settings = [
    'insert_deduplicate',
    'deduplicate_insert',
    'deduplicate_blocks_in_dependent_materialized_views',
    'async_insert',
    'max_insert_block_size',
  ] as const;
  return new StartError(
    `ClickHouse ${version} at ${where} does not store exactly once: ${what}; let our user's profile allow ${settings.map((name) => `${name} = ${insertSettings[name]}`).join(', ')}, or use a version that docs/dependencies.md lists`,
    { exitCode: EXIT_CONFIG },
  );
}

/** Inserts the same batch under the same token, one after the other. */
async function twice(clickhouse: ClickHouse, attempt: string): Promise<void> {
  const settings = { insert_deduplication_token: attempt };
  for (let time = 0; time < 2; time++) await clickhouse.insertRows({ ...INTO, pieces: batch(attempt), settings });
}

/** Inserts a batch whose last row cannot be read. Throws StartError if it is accepted. */
async function incomplete(clickhouse: ClickHouse, attempt: string): Promise<void> {
  const pieces = batch(attempt);
  pieces[ROWS - 1] = pieces[ROWS - 1]!.subarray(0, -1);
  try {
    await clickhouse.insertRows({ ...INTO, pieces, settings: { insert_deduplication_token: attempt } });
  } catch (error) {
    if (error instanceof ClickHouseError && CUT_ROW.has(error.codeName)) return;
    throw error;
  }
  throw refuse(clickhouse, 'a batch that fails at its last row was taken');
}

/** Returns a batch in RowBinary, one piece per row. */
function batch(attempt: string): Buffer[] {
  const row = new RowBinary(0);
  return Array.from({ length: ROWS }, (_, number) => {
    row.begin();
    row.text(attempt);
    row.int64(number);
    row.text(`canary ${number}`);
    return row.take()[0]!;
  });
}

function firstLine(message: string): string {
  return (message.split('\n', 1)[0] ?? '').replace(/^Code: \d+\. DB::Exception: /, '').replace(/ \(version .*$/, '');
}
