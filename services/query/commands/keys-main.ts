import { runCommandLine } from '../../../common/command/run-command.ts';
import { keysCommand } from './keys.ts';

await runCommandLine(keysCommand);
