import { runCommandLine } from '../../../common/command/main.ts';
import { reconcileCommand } from './reconcile.ts';

await runCommandLine(reconcileCommand);
