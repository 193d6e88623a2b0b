import { runCommandLine } from '../../../common/command/run-command.ts';
import { backupCommand } from './backup.ts';

await runCommandLine(backupCommand);
