import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import { startLocalBroker, type Broker } from './local-broker/local-broker.ts';

/**
 * Returns the Kafka of KAFKA_BROKERS, which we neither start nor stop. Without that setting, starts a local broker.
 * Throws StartError if it cannot start.
 */
export async function startBroker(
  settings: Pick<Settings, 'KAFKA_BROKERS' | 'KAFKA_PORT' | 'DATA_DIR' | 'CACHE_DIR' | 'JAVA_HOME' | 'FSYNC'>,
  logger: Logger,
  signal?: AbortSignal,
): Promise<Broker> {
  if (settings.KAFKA_BROKERS !== undefined) {
    return { name: 'kafka', brokers: settings.KAFKA_BROKERS, stop: () => Promise.resolve() };
  }
  return startLocalBroker({
    dataDir: settings.DATA_DIR,
    port: settings.KAFKA_PORT,
    cacheDir: settings.CACHE_DIR,
    javaHome: settings.JAVA_HOME,
    fsync: settings.FSYNC,
    logger,
    signal,
  });
}
