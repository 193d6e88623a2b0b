import { form, type Command } from '../../../common/command/command.ts';
import { BACKUP_NAME, createBackup, restoreBackup, type BackupResult } from '../operate/backup.ts';

type Args =
  | { readonly action: 'create'; readonly place: string; readonly base?: string }
  | { readonly action: 'restore'; readonly place: string; readonly database?: string; readonly base?: string };

const BACKUP = { type: 'string', pattern: BACKUP_NAME.source };

export const backupCommand: Command<Args, BackupResult> = {
  name: 'backup',
  about: `PLACE is one of BACKUP_PLACES: with BACKUP_PLACES=local=/var/backups/sluice, local/monday is a backup. The running npm start reads that
setting; if none runs, the command does.
Before, stop npm start (the command then opens the data folder itself), or the services ingest and rollup.
After a restore, ingest continues where the ledger ends. It reads what came after the backup from Kafka again, once.`,
  forms: {
    create: form({
      help: 'backs everything up; with --base only what that backup lacks',
      words: ['PLACE/NAME'],
      options: { base: { value: 'PLACE/NAME' } },
      schema: { properties: { place: BACKUP, base: BACKUP }, required: ['place'] },
      read: ({ base }, [place]): Args => ({ action: 'create', place, ...(base !== undefined && { base }) }),
    }),
    restore: form({
      help: 'restores into an empty database; NAME is its name where the backup was taken (embedded: sluice); --base says where the base of an increment is now, if it was moved',
      words: ['PLACE/NAME'],
      options: { database: { value: 'NAME' }, base: { value: 'PLACE/NAME' } },
      schema: {
        properties: { place: BACKUP, database: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,100}$' }, base: BACKUP },
        required: ['place'],
      },
      read: ({ database, base }, [place]): Args => ({
        action: 'restore',
        place,
        ...(database !== undefined && { database }),
        ...(base !== undefined && { base }),
      }),
    }),
  },

  mayCreate: (args) => args.action === 'restore',
  run: async ({ clickhouse, settings, logger }, args) => {
    const context = { clickhouse, logger, places: settings.BACKUP_PLACES };
    if (args.action === 'create') return await createBackup(context, args);
    return await restoreBackup(context, args, settings.RAW_RETENTION_DAYS);
  },

  interrupted: ({ action, place }) =>
    action === 'create'
      ? `ClickHouse may go on with the backup ${place}, and nobody checks it any more; delete it, and repeat under another name`
      : `ClickHouse may go on with the restore of ${place}, and nobody checks it any more; empty the database when it has ended, and repeat`,

  print: ({ files, bytes, last_evaluated_at }) =>
    `${files} files, ${bytes} bytes; ${last_evaluated_at === 0 ? 'nothing was ingested yet' : `ingested up to ${new Date(last_evaluated_at).toISOString()}`}\n`,
};
