import { parseArgs } from 'node:util';
import { edgesOfFields, edgesOfJson, edgesOfRequests, edgesOfTimes, mutatedEvents, randomMessages } from './checks.ts';

// npm run fuzz -- [--events N] [--seed S]: N mutated events against JSON.parse, N random messages of all sources
// against the oracle, and every edge.

/** A seed serves so many; the next ones come from the next seed. */
const CHUNK = 50_000;
/** Messages of a batch, on average, of nine sources. */
const PER_RUN = 9 * 15;

const { values } = parseArgs({
  options: {
    events: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: String(Date.now() % 1e9) },
  },
});
const events = Number(values.events);
const seed = Number(values.seed);
console.log(`seed ${seed}`);

function stopAt(difference: string | undefined): void {
  if (difference === undefined) return;
  console.error(difference);
  process.exit(1);
}

for (const edges of [edgesOfJson, edgesOfFields, edgesOfRequests, edgesOfTimes]) stopAt(await edges());
for (let done = 0; done < events; done += CHUNK) {
  stopAt(mutatedEvents(seed + done / CHUNK, Math.min(CHUNK, events - done)));
  await randomMessages(seed + done / CHUNK, Math.ceil(Math.min(CHUNK, events - done) / PER_RUN));
}
console.log(
  `${events} mutated events are valid where JSON.parse takes them, and about as many random messages are what the oracle says`,
);
