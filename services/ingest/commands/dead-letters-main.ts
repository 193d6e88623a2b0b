import { runCommandLine } from '../../../common/command/run-command.ts';
import { deadLettersCommand } from './dead-letters.ts';

await runCommandLine(deadLettersCommand);
