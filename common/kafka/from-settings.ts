import { readFileSync } from 'node:fs';
import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import { createKafka, type KafkaClient } from './client.ts';

/**
 * Returns a Kafka client with the TLS and the user of the settings. The settings were checked when they were read: they
 * fit together, and their files are readable.
 */
export function kafkaFromSettings(
  settings: Settings,
  brokers: readonly string[],
  clientId: string,
  logger: Logger,
): KafkaClient {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_USERNAME: username, KAFKA_SASL_PASSWORD: password } = settings;
  const file = (path: string | undefined): string | undefined =>
    path === undefined ? undefined : readFileSync(path, 'utf8');
  return createKafka({
    brokers,
    clientId,
    logger,
    maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    ssl: settings.KAFKA_SSL && {
      ca: file(settings.KAFKA_SSL_CA),
      cert: file(settings.KAFKA_SSL_CERT),
      key: file(settings.KAFKA_SSL_KEY),
    },
    ...(mechanism !== undefined &&
      username !== undefined &&
      password !== undefined && { sasl: { mechanism, username, password } }),
  });
}
