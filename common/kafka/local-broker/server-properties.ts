interface BrokerLayout {
  /** clients connect to 127.0.0.1 and this port */
  readonly port: number;
  /** a free port on 127.0.0.1, for the broker itself */
  readonly controllerPort: number;
  /** 127.0.0.1; in a container 0.0.0.0, because Docker forwards to its outer address */
  readonly bindHost: string;
  /** wait for the disk with every batch of records */
  readonly fsync: boolean;
  readonly more?: MoreListeners;
}

/**
 * Further listeners, named by their protocol (SSL, SASL_SSL ...), and their settings: for tests of what other brokers
 * demand from a client.
 */
export interface MoreListeners {
  readonly ports: Readonly<Record<string, number>>;
  readonly settings: Readonly<Record<string, string>>;
  /** users by SCRAM, as `--add-scram` takes them when the data folder is formatted */
  readonly scram: readonly string[];
}

const MiB = 1024 * 1024;

/** Version of Apache Kafka, for the jars (pom.xml) and the image. */
export const KAFKA_VERSION = '4.1.0';

/** Settings that are the same wherever the broker runs. */
export const brokerSettings: Readonly<Record<string, string | number>> = {
  // one node
  'offsets.topic.replication.factor': 1,
  'offsets.topic.num.partitions': 10,
  'transaction.state.log.replication.factor': 1,
  'transaction.state.log.min.isr': 1,
  'transaction.state.log.num.partitions': 10,
  'share.coordinator.state.topic.replication.factor': 1,
  'share.coordinator.state.topic.min.isr': 1,
  // a consumer gets its partitions at once, and may release them quickly
  'group.initial.rebalance.delay.ms': 0,
  'group.min.session.timeout.ms': 1_000,
  // a killed broker is readmitted when its old session has ended: after 5 s, or 12 s with the defaults of 9 and 2 s
  'broker.session.timeout.ms': 3_000,
  'broker.heartbeat.interval.ms': 500,
  // topics are created by name and with partitions; a misspelt one must not appear
  'auto.create.topics.enable': 'false',
  // the largest record batch: events of 8 MiB with their headers
  'message.max.bytes': 16 * MiB,
  // as long as events are accepted (RAW_RETENTION_DAYS), and by size, so that the disk does not fill
  'log.retention.hours': 90 * 24,
  'log.retention.bytes': 8 * 1024 * MiB,
  'log.segment.bytes': 256 * MiB,
  'offsets.retention.minutes': 400 * 24 * 60,
  // memory: the cleaner alone would take 128 MiB, and requests may wait without limit
  'log.cleaner.dedupe.buffer.size': 4 * MiB,
  'socket.request.max.bytes': 64 * MiB,
  'queued.max.request.bytes': 64 * MiB,
  'num.network.threads': 2,
  'num.io.threads': 4,
};

/**
 * Returns server.properties. The broker works in the folder of that file and keeps its log in data/ beside it. The path
 * is relative, because log.dirs is a list with commas.
 */
export function serverProperties({ port, controllerPort, bindHost, fsync, more }: BrokerLayout): string {
  const others = Object.entries(more?.ports ?? {});
  const add = (text: (protocol: string, port: number) => string): string =>
    others.map(([protocol, of]) => `,${text(protocol, of)}`).join('');
  const settings: Record<string, string | number> = {
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    listeners: `PLAINTEXT://${bindHost}:${port},CONTROLLER://127.0.0.1:${controllerPort}${add((protocol, of) => `${protocol}://${bindHost}:${of}`)}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port}${add((protocol, of) => `${protocol}://127.0.0.1:${of}`)}`,
    'listener.security.protocol.map': `PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT${add((protocol) => `${protocol}:${protocol}`)}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'PLAINTEXT',
    'log.dirs': 'data',
    ...brokerSettings,
    ...(fsync && { 'log.flush.interval.messages': 1 }),
    ...more?.settings,
  };
  return `${Object.entries(settings)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n')}\n`;
}

/**
 * Arguments of `java`. Measured on 2 cores with empty data: with these flags the broker answers after 1.9 s with 145 MB
 * resident. With Java's own collector and compilers it takes 2.8 s, and with Kafka's cleaner buffer of 128 MiB 334 MB.
 * Throughput is the same.
 */
export function javaArguments(classpath: string, mainClass: string, ...rest: string[]): string[] {
  return [
    '-Xms64m',
    '-Xmx384m',
    '-XX:+UseSerialGC',
    '-XX:TieredStopAtLevel=1',
    '-XX:+ExitOnOutOfMemoryError',
    '-Djava.awt.headless=true',
    '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
    '-Dorg.slf4j.simpleLogger.showDateTime=true',
    '-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS',
    '-cp',
    classpath,
    mainClass,
    ...rest,
  ];
}

export const formatClass = 'kafka.tools.StorageTool';
export const serverClass = 'kafka.Kafka';

/** Kafka's text for 16 bytes, here `sluice-local-bkr`. A client knows only one local broker. */
const CLUSTER_ID = 'c2x1aWNlLWxvY2FsLWJrcg';

/** Returns the arguments of formatClass, which gives the data folder its cluster id, and these users by SCRAM. */
export function formatArguments(properties: string, scram: readonly string[] = []): string[] {
  return [
    'format',
    '--cluster-id',
    CLUSTER_ID,
    '--config',
    properties,
    '--ignore-formatted',
    ...scram.flatMap((user) => ['--add-scram', user]),
  ];
}
