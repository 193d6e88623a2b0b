import { readFileSync } from 'node:fs';
import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import { createKafka, type KafkaClient } from './client.ts';

type KafkaSettings = Pick<
  Settings,
  | 'KAFKA_MAX_DECOMPRESSED_BYTES'
  | 'KAFKA_SSL'
  | 'KAFKA_SSL_CA'
  | 'KAFKA_SSL_CERT'
  | 'KAFKA_SSL_KEY'
  | 'KAFKA_SASL_MECHANISM'
  | 'KAFKA_SASL_USERNAME'
  | 'KAFKA_SASL_PASSWORD'
>;

/**
 * Returns a Kafka client with the TLS and the user of the settings. The settings were checked when they were read: they
 * fit together, and their files are readable.
 */
export function kafkaFromSettings(
  settings: KafkaSettings,
  brokers: readonly string[],
  clientId: string,
  logger: Logger,
): KafkaClient {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_USERNAME: username, KAFKA_SASL_PASSWORD: password } = settings;
  const file = (
    name: 'ca' | 'cert' | 'key',
    path: string | undefined,
  ): Partial<Record<'ca' | 'cert' | 'key', string>> =>
    path === undefined ? {} : { [name]: readFileSync(path, 'utf8') };
  return createKafka({
    brokers,
    clientId,
    logger,
    maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    ssl: settings.KAFKA_SSL && {
      ...file('ca', settings.KAFKA_SSL_CA),
      ...file('cert', settings.KAFKA_SSL_CERT),
      ...file('key', settings.KAFKA_SSL_KEY),
    },
    ...(mechanism !== undefined &&
      username !== undefined &&
      password !== undefined && { sasl: { mechanism, username, password } }),
  });
}
