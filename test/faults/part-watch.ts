import { readdirSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

/** What the thread of ingest-process.ts watches. */
export interface Watched {
  /** of the table, where the engine has its parts */
  readonly folder: string;
  readonly pid: number;
}

// A thread of its own, which never waits: between a part of raw and that of its view lie a few milliseconds.
const { folder, pid } = workerData as Watched;
/** parts that an insert made, not a merge: `<partition>_<block>_<block>_0`, of a table that adds up its rows `_1` */
const INSERTED = /^[^_]+_(\d+)_\1_[01]$/;

const before = new Set(readdirSync(folder));
parentPort!.postMessage('watching', []);
const until = performance.now() + 30_000;
while (!readdirSync(folder).some((name) => INSERTED.test(name) && !before.has(name)))
  if (performance.now() > until) throw new Error(`no part came in ${folder}`);
process.kill(pid, 'SIGKILL');
