import { startLocalBroker } from '../../../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../../../common/logger.ts';

// Starts a local broker and waits to be killed. Arguments: data folder, port, cache folder, Java's home or nothing.
const [dataDir = '', port, cacheDir = '', javaHome] = process.argv.slice(2);
await startLocalBroker({ dataDir, port: Number(port), cacheDir, javaHome, logger: createLogger('error') });
process.stdout.write('started\n');
setInterval(() => undefined, 1_000);
