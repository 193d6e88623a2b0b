import { printable } from './common/command/printable.ts';
import type { Command } from './common/command/command.ts';
import { runCommandLine } from './common/command/run-command.ts';
import { EXIT_USAGE } from './common/errors.ts';
import { backupCommand } from './services/ingest/commands/backup.ts';
import { deadLettersCommand } from './services/ingest/commands/dead-letters.ts';
import { ingestCommand } from './services/ingest/commands/ingest.ts';
import { moveCommand } from './services/ingest/commands/move.ts';
import { reconcileCommand } from './services/ingest/commands/reconcile.ts';
import { endpointsCommand } from './services/query/commands/endpoints.ts';
import { keysCommand } from './services/query/commands/keys.ts';
import { rollupCommand } from './services/rollup/commands/rollup.ts';

/** The commands of operators that a running service runs for a caller. */
export const commands: readonly Command[] = [
  reconcileCommand,
  deadLettersCommand,
  ingestCommand,
  rollupCommand,
  keysCommand,
  endpointsCommand,
  backupCommand,
];

// `npm run <name> -- ...` is `node cli.ts <name> ...`
export const all: readonly Command[] = [...commands, moveCommand];

const HELP = `node cli.ts <command> [...]; each takes --help\n${all.map((c) => `  ${c.name}\n`).join('')}`;

if (import.meta.main) {
  const [name, ...words] = process.argv.slice(2);
  const command = all.find((c) => c.name === name);
  if (command !== undefined) await runCommandLine(command, words);
  else if (name === '--help' || name === '-h') process.stdout.write(HELP);
  else {
    process.stderr.write(
      printable(`${name === undefined ? 'A command is missing' : `There is no command ${name}`}.\n${HELP}`),
    );
    process.exitCode = EXIT_USAGE;
  }
}
