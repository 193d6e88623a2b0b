import { UsageError, type Command } from '../../../common/command/command.ts';
import { createBackup, restoreBackup, type BackupResult } from '../backup.ts';

type Args = { readonly do: 'create'; readonly place: string; readonly base?: string } | { readonly do: 'restore'; readonly place: string; readonly database?: string };

export const backupCommand: Command<Args, BackupResult> = {
  name: 'backup',
  help: `npm run backup -- create PLACE [--base PLACE]       everything; with --base only what that backup lacks
npm run backup -- restore PLACE [--database NAME]   into an empty database; NAME is its name where the backup was taken (embedded: sluice)
PLACE is a path, or a destination as ClickHouse writes it: Disk('backups', 'monday'), S3('https://...', 'key', 'secret').
Nothing may be ingested meanwhile: stop npm start (the command then opens the data folder itself) or the ingest service. After a restore
the ledger says where every partition goes on: what came after the backup is taken from Kafka again, once.`,
  options: { base: { type: 'string' }, database: { type: 'string' } },

  readArgs(values, [verb, place, ...rest]) {
    if ((verb !== 'create' && verb !== 'restore') || place === undefined || rest.length > 0) throw new UsageError('backup takes create PLACE or restore PLACE');
    const { base, database } = values;
    if (verb === 'create' && database === undefined) return { do: verb, place, ...(typeof base === 'string' && { base }) };
    if (verb === 'restore' && base === undefined) return { do: verb, place, ...(typeof database === 'string' && { database }) };
    throw new UsageError('--base goes with create, --database with restore');
  },

  run: async ({ clickhouse }, args) => (args.do === 'create' ? await createBackup(clickhouse, args) : await restoreBackup(clickhouse, args)),

  print: ({ files, bytes, last_evaluated_at }) => `${files} files, ${bytes} bytes; ${last_evaluated_at === 0 ? 'nothing was ingested yet' : `ingested up to ${new Date(last_evaluated_at).toISOString()}`}\n`,
  exitCode: () => 0,
};
