import { readCommandLine } from '../../common/command/command-line.ts';
import type { Command } from '../../common/command/command.ts';

/** Returns the arguments that a command understands from these words of a command line. */
export function argsOf<Args, Result>(command: Command<Args, Result>, ...words: readonly string[]): Args {
  const line = readCommandLine(command, words);
  if (line === 'help') throw new Error('these words ask for help');
  return line.args;
}
