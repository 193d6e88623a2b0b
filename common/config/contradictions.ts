import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isLoopback } from '../http/address.ts';
import { fileText } from './parsers.ts';
import type { SettingName, Settings } from './settings.ts';

/** A shorter key could be guessed. */
export const SHORTEST_API_KEY = 16;

export interface Service {
  /** `npm run <script>`, or `start` */
  readonly script: string;
  /** settings that it cannot run without */
  readonly needs: readonly SettingName[];
}

/**
 * Returns what is wrong between settings that are valid by themselves, and for the service that runs by them. It skips
 * those in `wrong`, which have their defaults here.
 */
export function contradictions(
  settings: Settings,
  wrong: ReadonlySet<SettingName>,
  service: Service | undefined,
): string[] {
  const mistakes: string[] = [];
  const right = (...of: SettingName[]): boolean => !of.some((name) => wrong.has(name));
  const known = Object.values(settings.KAFKA_TOPICS);
  const unknown = settings.KAFKA_RAW_AVRO_TOPICS.filter((topic) => !known.includes(topic));
  if (unknown.length > 0 && right('KAFKA_TOPICS'))
    mistakes.push(
      `KAFKA_RAW_AVRO_TOPICS has ${unknown.map((topic) => JSON.stringify(topic)).join(', ')}; use topics of KAFKA_TOPICS: ${known.join(', ')}`,
    );

  const given = (...of: SettingName[]): SettingName[] =>
    of.filter((name) => settings[name] !== undefined && settings[name] !== false);
  const together = (...of: SettingName[]): void => {
    const some = given(...of);
    if (some.length > 0 && some.length < of.length && right(...of))
      mistakes.push(
        `${some.join(' and ')} ${some.length > 1 ? 'need' : 'needs'} ${of.filter((name) => !some.includes(name)).join(' and ')} too`,
      );
  };
  together('KAFKA_SASL_MECHANISM', 'KAFKA_SASL_USERNAME', 'KAFKA_SASL_PASSWORD');
  for (const [cert, key] of [
    ['KAFKA_SSL_CERT', 'KAFKA_SSL_KEY'],
    ['HTTPS_CERT', 'HTTPS_KEY'],
  ] as const) {
    together(cert, key);
    const [certificate, privateKey] = [settings[cert], settings[key]];
    if (
      certificate !== undefined &&
      privateKey !== undefined &&
      !new X509Certificate(fileText(certificate)).checkPrivateKey(createPrivateKey(fileText(privateKey)))
    )
      mistakes.push(`${key} is not the private key of ${cert}`);
  }
  for (const name of given('KAFKA_SSL_CA', 'KAFKA_SSL_CERT'))
    if (!settings.KAFKA_SSL && right('KAFKA_SSL')) mistakes.push(`${name} is given, but KAFKA_SSL is not true`);
  if (settings.KAFKA_BROKERS === undefined && right('KAFKA_BROKERS'))
    for (const name of given('KAFKA_SSL', 'KAFKA_SASL_MECHANISM'))
      mistakes.push(`${name} needs KAFKA_BROKERS: the local broker has neither TLS nor users`);
  if (right('CLICKHOUSE_URL')) {
    if (settings.CLICKHOUSE_CLUSTER !== undefined && settings.CLICKHOUSE_URL === undefined)
      mistakes.push('CLICKHOUSE_CLUSTER needs CLICKHOUSE_URL: the embedded engine is no node of a cluster');
    if (settings.CLICKHOUSE_CLUSTER === undefined && settings.CLICKHOUSE_URL?.includes(',') === true)
      mistakes.push('CLICKHOUSE_URL names several servers, but CLICKHOUSE_CLUSTER is not given');
    const urls = [settings.CLICKHOUSE_URL, settings.MOVE_FROM_URL];
    if (settings.CLICKHOUSE_SSL_CA !== undefined && !urls.some((url) => /^https:/i.test(url ?? '')))
      mistakes.push('CLICKHOUSE_SSL_CA is set, but neither CLICKHOUSE_URL nor MOVE_FROM_URL is an https address');
  }
  if (
    settings.API_KEY !== undefined &&
    settings.API_KEY.length < SHORTEST_API_KEY &&
    !isLoopback(settings.HOST) &&
    right('API_KEY', 'HOST')
  ) {
    mistakes.push(
      `API_KEY has fewer than ${SHORTEST_API_KEY} characters, and HOST lets others than this machine in; use a longer key`,
    );
  }
  // ingest and rollup do not listen on PORT
  const listens = service?.script === 'start' || service?.script === 'query';
  if (listens && settings.PORT !== 0 && settings.METRICS_PORT === settings.PORT && right('PORT'))
    mistakes.push(`METRICS_PORT and PORT are both ${settings.PORT}; without METRICS_PORT, PORT serves /metrics`);
  return mistakes;
}

/** Returns what a service cannot run without, if a setting of that is missing. It skips those in `wrong`. */
export function lackOf(
  settings: Settings,
  wrong: ReadonlySet<SettingName>,
  { script, needs }: Service,
): string | undefined {
  if (needs.every((name) => settings[name] !== undefined || wrong.has(name))) return undefined;
  return `npm run ${script} needs ${needs.join(' and ')}; npm start runs everything in one process without ${needs.length > 1 ? 'them' : 'it'}`;
}
