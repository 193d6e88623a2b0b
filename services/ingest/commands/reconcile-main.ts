import { runCommandLine } from '../../../common/command/run-command.ts';
import { reconcileCommand } from './reconcile.ts';

await runCommandLine(reconcileCommand);
