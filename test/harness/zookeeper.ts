import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findJava } from '../../common/kafka/local-broker/java.ts';
import { readSettings } from '../../common/config/settings.ts';
import { lastingPort } from './ports.ts';
import { fetched } from './tools.ts';
import { waitFor } from './wait-for.ts';

const ZOOKEEPER_VERSION = '3.9.3';
const POM = fileURLToPath(new URL('zookeeper/pom.xml', import.meta.url));
const FETCH_TIMEOUT_MS = 5 * 60_000;
const OPTIONS = ['-Xmx256m', '-Dzookeeper.forceSync=no'];
const MAIN_CLASS = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
const START_TIMEOUT_MS = 30_000;

/** Runs a program until its own input ends, at the latest with the process that holds the other end. Then kill -9. */
const UNTIL_INPUT_ENDS = '"$@" & cat > /dev/null; kill -9 $!; wait';

export interface ZooKeeper {
  readonly port: number;
  readonly pid: number;
  /** kill -9; its data stay */
  kill(): Promise<void>;
  /** Starts it again with its data. */
  start(): Promise<void>;
}

/** Starts Apache ZooKeeper on Java, with its data in a folder. Throws an error that says what is missing. */
export async function startZooKeeper(dataDir: string): Promise<ZooKeeper> {
  const java = await findJava(readSettings().JAVA_HOME);
  const jars = await fetched(
    `zookeeper-${ZOOKEEPER_VERSION}`,
    async (part) => {
      await promisify(execFile)(
        'mvn',
        ['-B', '-f', POM, 'dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${part}`],
        { cwd: part, timeout: FETCH_TIMEOUT_MS },
      );
    },
    `mvn -f ${POM} dependency:copy-dependencies`,
    'Apache ZooKeeper',
  );
  const port = await lastingPort();
  const home = join(dataDir, 'zookeeper');
  mkdirSync(home, { recursive: true });
  const config = join(home, 'zoo.cfg');
  writeFileSync(
    config,
    `tickTime=500\ndataDir=${join(home, 'data')}\nclientPort=${port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n`,
  );
  let child: ChildProcess;
  let exited: Promise<void>;
  const start = async (): Promise<void> => {
    child = spawn('sh', ['-c', UNTIL_INPUT_ENDS, 'sh', java, ...OPTIONS, '-cp', join(jars, '*'), MAIN_CLASS, config], {
      cwd: home,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    exited = new Promise((resolve) => {
      child.once('close', () => resolve());
    });
    await waitFor(() => answers(port), START_TIMEOUT_MS, 'ZooKeeper accepts connections');
  };
  await start();
  return {
    port,
    get pid() {
      return child.pid ?? 0;
    },
    start,
    async kill() {
      child.stdin?.end();
      await exited;
    },
  };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
