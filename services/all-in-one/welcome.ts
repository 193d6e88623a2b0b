import type { Topics } from '../../common/config/settings.ts';
import { createPopulation } from '../../demo/population.ts';

/** What a newcomer needs after the start: where it is, the key, and calls to paste. */
export function welcome({ address, madeKey, brokers, topics }: { address: string; madeKey: string | undefined; brokers: readonly string[]; topics: Topics }): string {
  const key = madeKey ?? '$API_KEY';
  // the busiest project of `npm run demo` with its default seed
  const project = createPopulation(1, 1, 0).project(0).ref;
  const call = (endpoint: string): string => `curl -H 'X-API-KEY: ${key}' '${address}/api/endpoints/${endpoint}'`;
  return `
sluice is ready at ${address} (docs at ${address}/docs)
${madeKey === undefined ? 'key: the one in API_KEY, or in the data folder from the first start' : `key: ${madeKey} (made now, shown this once; it stands in the data folder)`}
Kafka: ${brokers.join(',')}, for instance topic ${topics.edge_logs}

traffic to look at (in another terminal):
  npm run demo

${call(`logs.all?project=${project}`)}
${call(`functions.invocation-stats?project=${project}&interval=1hr`)}
${call(`usage.api-counts?project=${project}&interval=minutely`)}
`;
}
