import { readSettings } from '../../../common/config/settings.ts';
import { startLocalBroker } from '../../../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../../../common/logger.ts';

// Starts a local broker by the settings of its environment and waits to be killed.
await startLocalBroker(readSettings(), createLogger('error'));
process.stdout.write('started\n');
setInterval(() => undefined, 1_000);
