import { runCommandLine } from '../../../common/command/run-command.ts';
import { endpointsCommand } from './endpoints.ts';

// an endpoint's parameters become options of the command, whatever their names
const own = new Set(['url', 'json', 'help']);
const names = process.argv
  .slice(2)
  .flatMap((word) => /^--([A-Za-z_][A-Za-z0-9_]*)(=|$)/.exec(word)?.[1] ?? [])
  .filter((name) => !own.has(name));
await runCommandLine(endpointsCommand(Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]))));
