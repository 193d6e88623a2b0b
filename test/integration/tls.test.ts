import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { readSettings, type SettingName } from '../../common/config/settings.ts';
import { StartError } from '../../common/errors.ts';
import { createAcknowledgedProducer } from '../../common/kafka/acknowledged-producer.ts';
import type { KafkaClient } from '../../common/kafka/client.ts';
import { kafkaFromSettings } from '../../common/kafka/from-settings.ts';
import { freePort } from '../../common/kafka/local-broker/local-broker.ts';
import { ensureTopics } from '../../common/kafka/topics.ts';
import { makeCertificate, type Certificate } from '../harness/certificates.ts';
import { startFace, type Face } from '../harness/clickhouse-face.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { readAll, startOwnBroker, uniqueName, type OwnBroker } from '../harness/kafka.ts';
import { endAll, startScript, startSluice, type RunningSluice } from '../harness/service.ts';
import { waitFor } from '../harness/wait-for.ts';

/** TLS and users, to Kafka, to ClickHouse and of our own HTTP service; and what is told where they do not fit. */
type Env = Partial<Record<SettingName, string>>;
const PASSWORD = 's3cr3t-of-the-tests';
const folder = temporaryFolder();
let authority: Certificate;
let server: Certificate;
let client: Certificate;
let stranger: Certificate;
let broker: OwnBroker;
let ports: { readonly SSL: number; readonly SASL_SSL: number };
let sluice: RunningSluice | undefined;

beforeAll(async () => {
  authority = makeCertificate(folder.path, 'authority');
  stranger = makeCertificate(folder.path, 'stranger');
  server = makeCertificate(folder.path, 'server', authority);
  client = makeCertificate(folder.path, 'client', authority);
  ports = { SSL: await freePort(), SASL_SSL: await freePort() };
  // a line of server.properties each
  const pem = (file: string): string => readFileSync(file, 'utf8').trim().replaceAll('\n', '\\n');
  const scramLogin = 'org.apache.kafka.common.security.scram.ScramLoginModule required;';
  broker = await startOwnBroker({
    ports,
    settings: {
      'ssl.keystore.type': 'PEM',
      'ssl.keystore.certificate.chain': pem(server.cert),
      'ssl.keystore.key': pem(server.key),
      'ssl.truststore.type': 'PEM',
      'ssl.truststore.certificates': pem(authority.cert),
      'listener.name.ssl.ssl.client.auth': 'required',
      'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
      'listener.name.sasl_ssl.plain.sasl.jaas.config': `org.apache.kafka.common.security.plain.PlainLoginModule required user_sluice="${PASSWORD}";`,
      'listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config': scramLogin,
      'listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config': scramLogin,
    },
    scram: ['SCRAM-SHA-256', 'SCRAM-SHA-512'].map((mechanism) => `${mechanism}=[name=sluice,password=${PASSWORD}]`),
  });
});
afterAll(async () => {
  await endAll();
  await broker?.stop();
  folder.remove();
});

const tls = (): Env => ({
  KAFKA_BROKERS: `127.0.0.1:${ports.SASL_SSL}`,
  KAFKA_SSL: 'true',
  KAFKA_SSL_CA: authority.cert,
});
const user = (mechanism = 'plain'): Env => ({
  KAFKA_SASL_MECHANISM: mechanism,
  KAFKA_SASL_USERNAME: 'sluice',
  KAFKA_SASL_PASSWORD: PASSWORD,
});

function kafkaOf(env: Env): KafkaClient {
  const settings = readSettings(env);
  return kafkaFromSettings(settings, settings.KAFKA_BROKERS!, 'tls', testLogger);
}

/** What stands on the one line that a failed start prints. */
async function failure(start: Promise<unknown>): Promise<string> {
  const error = await start.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(StartError);
  const { message } = error as StartError;
  expect(message).not.toMatch(/\n|s3cr3t/);
  return message;
}

describe('settings', () => {
  it('that do not fit together, or whose files are none, are named at once', () => {
    const mistakes = (env: Env): string[] => {
      try {
        readSettings(env);
        return [];
      } catch (error) {
        expect(error).toMatchObject({ exitCode: 78 });
        return (error as Error).message
          .split('\n')
          .slice(1)
          .map((line) => line.trim());
      }
    };
    expect(
      mistakes({
        ...tls(),
        ...user(),
        KAFKA_SSL_CERT: client.cert,
        KAFKA_SSL_KEY: client.key,
        HTTPS_CERT: server.cert,
        HTTPS_KEY: server.key,
      }),
    ).toEqual([]);
    expect(
      mistakes({
        KAFKA_SSL_CA: '/no/such/file',
        KAFKA_SSL_CERT: server.key,
        HTTPS_KEY: server.cert,
        KAFKA_SSL: 'yes',
        KAFKA_SASL_MECHANISM: 'gssapi',
      }),
    ).toEqual([
      'KAFKA_SSL is "yes"; use one of true, false',
      'KAFKA_SSL_CA names a file that cannot be read (ENOENT)',
      'KAFKA_SSL_CERT names a file that has no certificate in PEM',
      'KAFKA_SASL_MECHANISM is "gssapi"; use one of plain, scram-sha-256, scram-sha-512',
      'HTTPS_KEY names a file that has no private key in PEM without a passphrase',
    ]);
    expect(
      mistakes({
        KAFKA_SSL_CA: authority.cert,
        KAFKA_SASL_MECHANISM: 'PLAIN',
        KAFKA_SASL_USERNAME: 'u',
        HTTPS_CERT: server.cert,
        CLICKHOUSE_URL: 'http://c',
        CLICKHOUSE_SSL_CA: authority.cert,
      }),
    ).toEqual([
      'KAFKA_SASL_MECHANISM and KAFKA_SASL_USERNAME need KAFKA_SASL_PASSWORD too',
      'HTTPS_CERT needs HTTPS_KEY too',
      'KAFKA_SSL_CA is given, but KAFKA_SSL is not true',
      'KAFKA_SASL_MECHANISM needs KAFKA_BROKERS: the local broker has neither TLS nor users',
      'CLICKHOUSE_SSL_CA is set, but neither CLICKHOUSE_URL nor MOVE_FROM_URL is an https address',
    ]);
    expect(mistakes({ HTTPS_CERT: server.cert, HTTPS_KEY: client.key })).toEqual([
      'HTTPS_KEY is not the private key of HTTPS_CERT',
    ]);
    // the old place alone speaks TLS
    const move = { CLICKHOUSE_URL: 'http://new', MOVE_FROM_URL: 'https://old', CLICKHOUSE_SSL_CA: authority.cert };
    expect(readSettings(move).CLICKHOUSE_SSL_CA).toBe(authority.cert);
  });
});

describe('Kafka', () => {
  it.each(['plain', 'SCRAM-SHA-256', 'scram-sha-512'])(
    'by TLS with a user, %s: topics are made, messages acknowledged',
    async (mechanism) => {
      const kafka = kafkaOf({ ...tls(), ...user(mechanism) });
      const topic = uniqueName('tls');
      await ensureTopics(kafka, [topic], 1);
      const producer = createAcknowledgedProducer(kafka, testLogger);
      await producer.send(topic, [{ key: null, value: Buffer.from(mechanism), timestamp: 1 }]).acknowledged;
      await producer.stop();
      expect((await readAll(topic, { brokers: broker.brokers })).map(({ message }) => String(message.value))).toEqual([
        mechanism,
      ]);
    },
  );

  it('by TLS with a certificate of ours', async () => {
    const env = { ...tls(), KAFKA_BROKERS: `127.0.0.1:${ports.SSL}` };
    await ensureTopics(
      kafkaOf({ ...env, KAFKA_SSL_CERT: client.cert, KAFKA_SSL_KEY: client.key }),
      [uniqueName('tls')],
      1,
    );
    expect(await failure(ensureTopics(kafkaOf(env), ['t'], 1))).toMatch(
      /^Kafka at 127\.0\.0\.1:\d+ ends the TLS handshake \(\S+\); if it requires a client certificate, set KAFKA_SSL_CERT and KAFKA_SSL_KEY$/,
    );
  });

  it.each<[string, () => Env, RegExp]>([
    [
      'a wrong password',
      () => ({ ...tls(), ...user(), KAFKA_SASL_PASSWORD: 'wrong-s3cr3t' }),
      /^Kafka at 127\.0\.0\.1:\d+ refuses the user sluice or its password by plain; check KAFKA_SASL_\*$/,
    ],
    [
      'a wrong password by SCRAM',
      () => ({ ...tls(), ...user('scram-sha-512'), KAFKA_SASL_PASSWORD: 'wrong-s3cr3t' }),
      /^Kafka at 127\.0\.0\.1:\d+ refuses the user sluice or its password by scram-sha-512; check KAFKA_SASL_\*$/,
    ],
    [
      'another authority',
      () => ({ ...tls(), ...user(), KAFKA_SSL_CA: stranger.cert }),
      /^Kafka at 127\.0\.0\.1:\d+ has an untrusted certificate \(\w+\); set KAFKA_SSL_CA to the file of its authority$/,
    ],
    [
      'TLS where there is none',
      () => ({ ...tls(), KAFKA_BROKERS: broker.brokers[0]! }),
      /^Kafka at 127\.0\.0\.1:\d+ does not speak TLS; set KAFKA_SSL=false$/,
    ],
    [
      'none where there is TLS',
      () => ({ KAFKA_BROKERS: tls().KAFKA_BROKERS! }),
      /^Kafka at 127\.0\.0\.1:\d+ speaks TLS; set KAFKA_SSL=true$/,
    ],
  ])('%s is one clear line, at once', async (_, env, line) => {
    const started = performance.now();
    expect(await failure(ensureTopics(kafkaOf(env()), ['t'], 1))).toMatch(line);
    // not when the deadline for a broker that does not answer is over
    expect(performance.now() - started).toBeLessThan(9_000);
  });

  it('a process that is refused says so in its last line, without a stack and the secret', async () => {
    const demo = startScript('demo', { ...tls(), ...user(), KAFKA_SASL_PASSWORD: 'wrong-s3cr3t' });
    expect(await demo.exited).toBe(1);
    expect(demo.stderr().trim().split('\n').at(-1)).toMatch(
      /^sluice: Kafka at \S+ refuses the user sluice or its password by plain; check KAFKA_SASL_\*$/,
    );
    expect(demo.stderr()).not.toMatch(/s3cr3t|^\s+at /m);
  });
});

describe('ClickHouse', () => {
  let face: Face;
  beforeAll(async () => {
    face = await startFace({ dataDir: folder.path, password: PASSWORD, tls: server });
  });
  afterAll(async () => {
    await face?.stop();
  });
  const open = (change: (url: URL) => void, ca: string | undefined): ReturnType<typeof openClickHouse> => {
    const url = new URL(face.url);
    change(url);
    return openClickHouse(
      readSettings({ CLICKHOUSE_URL: url.href, ...(ca !== undefined && { CLICKHOUSE_SSL_CA: ca }) }),
      testLogger,
    );
  };

  it('by TLS with user and password', async () => {
    const clickhouse = await open(() => {}, authority.cert);
    expect((await clickhouse.read({ sql: 'SELECT 1 AS one', format: 'JSONEachRow' })).body.toString()).toBe(
      '{"one":1}\n',
    );
    expect(clickhouse.where).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/sluice$/);
    await clickhouse.close();
  });

  it('what does not fit is one clear line, at once', async () => {
    expect(
      await failure(
        open((url) => {
          url.password = 'wrong-s3cr3t';
        }, authority.cert),
      ),
    ).toMatch(/^ClickHouse at \S+ refuses the user sluice or its password; check CLICKHOUSE_URL$/);
    for (const ca of [stranger.cert, undefined])
      expect(await failure(open(() => {}, ca))).toMatch(
        /^ClickHouse at \S+ has an untrusted certificate \(\w+\); set CLICKHOUSE_SSL_CA to the file of its authority$/,
      );
    expect(
      await failure(
        open((url) => {
          url.protocol = 'http:';
        }, undefined),
      ),
    ).toMatch(/^ClickHouse at \S+ speaks TLS on this port; use https:\/\/ in CLICKHOUSE_URL$/);
    const port = await freePort();
    const late = failure(openClickHouse(readSettings({ CLICKHOUSE_URL: `http://[::1]:${port}/sluice` }), testLogger));
    const secure = createSecureServer({ cert: readFileSync(server.cert), key: readFileSync(server.key) });
    // a start of ClickHouse takes longer than ours
    setTimeout(() => secure.listen(port, '::1'), 500);
    expect(await late).toMatch(/^ClickHouse at \S+ speaks TLS on this port; use https:\/\/ in CLICKHOUSE_URL$/);
    secure.close();
    const plain = createServer((_request, response) => response.end());
    await new Promise<void>((resolve) => {
      plain.listen(0, '127.0.0.1', resolve);
    });
    expect(
      await failure(
        open((url) => {
          url.port = String((plain.address() as AddressInfo).port);
        }, authority.cert),
      ),
    ).toMatch(/^ClickHouse at \S+ does not speak TLS on this port \(\w+\); use http:\/\/ in CLICKHOUSE_URL$/);
    plain.close();
  });
});

describe('npm start', () => {
  it('with Kafka by TLS and SCRAM and HTTP by TLS: a pushed event comes back, a command finds its service, plain HTTP gets nothing', async () => {
    const port = String(await freePort());
    const env = {
      ...tls(),
      ...user('scram-sha-256'),
      HTTPS_CERT: server.cert,
      HTTPS_KEY: server.key,
      DATA_DIR: `${folder.path}/start`,
      PORT: port,
      API_KEY: 'the-key-of-the-tests',
      KAFKA_TOPIC_PARTITIONS: '1',
    };
    // an operator's browser has the authority installed; so has this test's fetch
    setDefaultCACertificates([...getCACertificates('default'), readFileSync(authority.cert, 'utf8')]);
    sluice = await startSluice(env);
    expect(sluice.address).toBe(`https://127.0.0.1:${port}`);
    const pushed = await fetch(`${sluice.address}/api/logs?source_name=edge_logs&api_key=${sluice.key}`, {
      method: 'POST',
      body: '{"project":"p","event_message":"by TLS"}',
    });
    expect(await pushed.json()).toEqual({ message: 'Logged!' });
    await waitFor(
      async () => (await sluice!.ask('logs.all', { project: 'p' })).some((row) => row['event_message'] === 'by TLS'),
      20_000,
      'the event is in logs.all',
    );
    const keys = startScript('keys', env, ['list', '--json']);
    expect(await keys.exited, keys.stderr()).toBe(0);
    expect(JSON.parse(keys.stdout())).toHaveProperty('keys');
    const demo = startScript('demo', env, ['--rate', '20', '--duration', '2']);
    expect(await demo.exited, demo.stderr()).toBe(0);
    expect(demo.stderr()).toMatch(/in all \d+ sent, \d+ acknowledged, \d+ visible/);
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow('fetch failed');
    expect(await sluice.end()).toBe(0);
    expect(sluice.stderr()).not.toContain(PASSWORD);
  });
});
