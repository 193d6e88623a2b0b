import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Returns to the system what V8's heap does not need. V8 by itself keeps it in a process that allocates little: after a
 * start that is 16 of 53 MB. It stops the event loop for some 80 ms.
 */
export function shrinkHeap(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as NodeJS.GCFunction;
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
