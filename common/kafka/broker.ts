import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';
import { startLocalBroker, type Broker } from './local-broker/local-broker.ts';

/**
 * The Kafka of KAFKA_BROKERS, which is not ours to start or stop, else a local one.
 * Throws StartError when there is none to be had.
 */
export async function startBroker(
  settings: Pick<Settings, 'KAFKA_BROKERS' | 'KAFKA_PORT' | 'DATA_DIR' | 'CACHE_DIR' | 'JAVA_HOME' | 'FSYNC'>,
  logger: Logger,
  signal?: AbortSignal,
): Promise<Broker> {
  if (settings.KAFKA_BROKERS !== undefined) {
    return {
      name: 'kafka',
      brokers: settings.KAFKA_BROKERS,
      failed: new Promise<never>(() => undefined),
      stop: () => Promise.resolve(),
    };
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
