import { runCommandLine } from '../../../common/command/run-command.ts';
import { moveCommand } from './move.ts';

await runCommandLine(moveCommand);
