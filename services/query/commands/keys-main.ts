import { runCommandLine } from '../../../common/command/main.ts';
import { keysCommand } from './keys.ts';

await runCommandLine(keysCommand);
