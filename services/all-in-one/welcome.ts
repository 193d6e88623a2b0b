import type { Topics } from '../../common/config/parsers.ts';
import { createPopulation } from '../../demo/population.ts';

interface Welcome {
  readonly address: string;
  /** signs the console in, once; undefined if only a key does */
  readonly signInToken?: string | undefined;
  /** the first key if it was created now */
  readonly createdKey: string | undefined;
  /** the file of the key; undefined if API_KEY is set */
  readonly keyFile: string | undefined;
  readonly brokers: readonly string[];
  /** false: KAFKA_BROKERS names them, perhaps a cluster with the topics of others */
  readonly areBrokersOurs: boolean;
  readonly topics: Topics;
}

/** Returns the text as one word of a POSIX shell. */
function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Returns what a newcomer needs after the start: the address, the key, and calls to paste. */
export function welcome({
  address,
  signInToken,
  createdKey,
  keyFile,
  brokers,
  areBrokersOurs,
  topics,
}: Welcome): string {
  // in double quotes, so the shell expands it
  const key = createdKey ?? (keyFile === undefined ? '$API_KEY' : `$(cat ${quoted(keyFile)})`);
  // the busiest project of `npm run demo` with its default seed
  const project = areBrokersOurs ? createPopulation(1, 1, 0).project(0).ref : 'YOUR_PROJECT';
  const call = (endpoint: string): string => `curl -H "X-API-KEY: ${key}" '${address}/api/endpoints/${endpoint}'`;
  const demo = areBrokersOurs
    ? `traffic to look at (in another terminal, with the same settings):
  npm run demo

then ask for it (the last two answers are cached, also if they are empty):
`
    : '';
  return `
sluice is ready at ${address} (docs at ${address}/docs)
${signInToken === undefined ? `console: ${address}/ (sign in with the key)` : `console: ${address}/#token=${signInToken} (signs in once, within 10 minutes)`}
${createdKey !== undefined ? `key: ${createdKey} (created now, shown only this once, and stored in the data folder)` : `key: the one in ${keyFile === undefined ? 'API_KEY' : `${keyFile}, created on the first start`}`}
Kafka: ${brokers.join(',')}, for instance topic ${topics.edge_logs}

${demo}${call(`logs.all?project=${project}`)}
${call(`functions.invocation-stats?project=${project}&interval=1hr`)}
${call(`usage.api-counts?project=${project}&interval=minutely`)}
`;
}
