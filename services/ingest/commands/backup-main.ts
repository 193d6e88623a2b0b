import { runCommandLine } from '../../../common/command/main.ts';
import { backupCommand } from './backup.ts';

await runCommandLine(backupCommand);
