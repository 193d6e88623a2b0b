import { runCommandLine } from '../../../common/command/main.ts';
import { moveCommand } from './move.ts';

await runCommandLine(moveCommand);
