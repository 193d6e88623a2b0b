import { runCommandLine } from '../../../common/command/main.ts';
import { deadLettersCommand } from './dead-letters.ts';

await runCommandLine(deadLettersCommand);
