import { oneOfActions } from '../../../common/command/arguments.ts';
import { UsageError, type Command } from '../../../common/command/command.ts';
import { BACKUP_NAME, createBackup, restoreBackup, type BackupResult } from '../backup.ts';

type Args =
  | { readonly do: 'create'; readonly place: string; readonly base?: string }
  | { readonly do: 'restore'; readonly place: string; readonly database?: string };

const BACKUP = { type: 'string', pattern: BACKUP_NAME.source };

export const backupCommand: Command<Args, BackupResult> = {
  name: 'backup',
  help: `npm run backup -- create PLACE/NAME [--base PLACE/NAME]   everything; with --base only what that backup lacks
npm run backup -- restore PLACE/NAME [--database NAME]    into an empty database; NAME is its name where the backup was taken (embedded: sluice)
PLACE is one of BACKUP_PLACES, which the running service reads, or the command where none runs: BACKUP_PLACES=local=/var/backups/sluice makes local/monday a backup.
Nothing may be ingested meanwhile: stop npm start (the command then opens the data folder itself) or the ingest service. After a restore
the ledger says where every partition goes on: what came after the backup is taken from Kafka again, once.`,
  args: oneOfActions('do', {
    create: { properties: { place: BACKUP, base: BACKUP }, required: ['place'] },
    restore: {
      properties: { place: BACKUP, database: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,100}$' } },
      required: ['place'],
    },
  }),
  options: { base: { type: 'string' }, database: { type: 'string' } },

  readArgs(values, [verb, place, ...rest]) {
    if ((verb !== 'create' && verb !== 'restore') || place === undefined || rest.length > 0)
      throw new UsageError('backup takes create PLACE/NAME or restore PLACE/NAME');
    const { base, database } = values;
    if (verb === 'create' && database === undefined)
      return { do: verb, place, ...(typeof base === 'string' && { base }) };
    if (verb === 'restore' && base === undefined)
      return { do: verb, place, ...(typeof database === 'string' && { database }) };
    throw new UsageError('--base goes with create, --database with restore');
  },

  run: async ({ clickhouse, settings, logger }, args) => {
    const context = { clickhouse, logger, places: settings.BACKUP_PLACES };
    return args.do === 'create' ? await createBackup(context, args) : await restoreBackup(context, args);
  },

  print: ({ files, bytes, last_evaluated_at }) =>
    `${files} files, ${bytes} bytes; ${last_evaluated_at === 0 ? 'nothing was ingested yet' : `ingested up to ${new Date(last_evaluated_at).toISOString()}`}\n`,
  exitCode: () => 0,
};
