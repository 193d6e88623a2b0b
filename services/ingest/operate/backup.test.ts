import { afterEach, expect, test, vi } from 'vitest';
import type { ClickHouse, Read } from '../../../common/clickhouse/clickhouse.ts';
import { lost } from '../../../common/clickhouse/cluster/node-list.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { backupPlaces } from '../../../common/config/backup-places.ts';
import { createLogger } from '../../../common/logger.ts';
import { statements } from '../store/statements.ts';
import { createBackup, restoreBackup } from './backup.ts';

afterEach(() => vi.restoreAllMocks());

/** A backup of which the nodes of a cluster say this, one answer after the other. */
function backUp(...answers: readonly (string | Error)[]): Promise<unknown> {
  return backUpTo('local=/var/backups', ...answers.map((status) => ({ status })));
}

async function backUpTo(
  place: string,
  ...answers: readonly { readonly status: string | Error; readonly free?: number }[]
): Promise<unknown> {
  const states = answers.values();
  const answerOf = ({ sql, everyNode }: Read): string => {
    if (sql === statements.unaccounted || sql === statements.replicatedTables) return '';
    if (sql !== statements.backupState) return '{"name":"sluice","batches":1,"last_evaluated_at":7}';
    const { status, free = 2 ** 40 } = states.next().value!;
    expect(everyNode).toBe(true);
    if (status instanceof Error) throw status;
    return JSON.stringify({ status, error: '', files: 3, bytes: 5, free });
  };
  const clickhouse = {
    read: async (read: Read) => ({ body: Buffer.from(answerOf(read)), readRows: undefined, readBytes: undefined }),
    execute: async () => {},
  } as unknown as ClickHouse;
  const places = backupPlaces(place);
  return await createBackup({ clickhouse, places, logger: createLogger('silent') }, { place: 'local/monday' });
}

const RESTARTING = lost(new Error('connect ECONNREFUSED'), 'ECONNREFUSED');

const CLOUD = "S3('https://b.example/monday', 'k', 's')";
const SAME_KEYS = 'use_same_s3_credentials_for_base_backup = 1';

test('a backup is waited for while a node restarts and the state cannot be asked for', async () => {
  expect(await backUp('CREATING_BACKUP', RESTARTING, 'CREATING_BACKUP', RESTARTING, 'BACKUP_CREATED')).toEqual({
    files: 3,
    bytes: 5,
    last_evaluated_at: 7,
  });
});

test('it is not waited for without end, and an error that stays is one', async () => {
  await expect(backUp('CREATING_BACKUP', refusal(497, 'Not enough privileges'))).rejects.toThrow('privileges');
  const passed = [0, 0, 599_000, 601_000];
  vi.spyOn(performance, 'now').mockImplementation(() => passed.shift()!);
  await expect(backUp('CREATING_BACKUP', RESTARTING, RESTARTING, 'BACKUP_CREATED')).rejects.toThrow('ECONNREFUSED');
});

test('a backup is unusable if its disk was nearly full at any time: ClickHouse does not notice cut files', async () => {
  const disk = "local=Disk('backups')";
  expect(await backUpTo(disk, { status: 'BACKUP_CREATED', free: 2 ** 26 })).toMatchObject({ files: 3 });
  const full = { status: 'CREATING_BACKUP', free: 4096 };
  await expect(backUpTo(disk, full, { status: 'BACKUP_CREATED' })).rejects.toThrow(
    'the backup local/monday is unusable: its disk had 4096 bytes left, and ClickHouse does not notice when it cuts files short. Delete it, free space and repeat.',
  );
});

test.each([
  ['of the same keys, where the base stayed', 'cloud/tuesday', undefined, [SAME_KEYS]],
  ['of the same keys, with a base of theirs', 'cloud/tuesday', 'cloud/monday', [`base_backup = ${CLOUD}`, SAME_KEYS]],
  ['whose base has other keys', 'other/tuesday', 'cloud/monday', [`base_backup = ${CLOUD}`]],
  ['whose base is in a folder', 'cloud/tuesday', 'local/monday', ["base_backup = File('/var/backups/monday')"]],
  ['in a folder', 'local/tuesday', 'local/monday', ["base_backup = File('/var/backups/monday')"]],
  ['in a bucket that needs no keys', 'open/tuesday', undefined, []],
])('an increment %s is restored with today`s place and keys of its base', async (_, place, base, settings) => {
  const places = backupPlaces(
    "local=/var/backups,cloud=S3('https://b.example','k','s'),other=S3('https://b.example','k','other'),open=S3('https://b.example')",
  );
  let restored = '';
  const clickhouse = {
    read: async ({ sql }: Read) => ({ body: Buffer.from(sql.includes('AS name') ? '{"name":"sluice"}' : '') }),
    execute: async ({ sql }: { sql: string }) => {
      restored = sql;
      throw new Error('enough');
    },
  } as unknown as ClickHouse;
  const context = { clickhouse, places, logger: createLogger('silent') };
  await expect(restoreBackup(context, { place, ...(base && { base }) }, 90)).rejects.toThrow('enough');
  expect(restored.replace(/^.* SETTINGS id = '[^']+'(, )?| ASYNC$/g, '')).toBe(settings.join(', '));
});
