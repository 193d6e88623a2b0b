import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { choose, CLICKHOUSE_TEST_IMAGE } from './choice.ts';

const brokers = ['kafka:9092'];
const url = 'http://clickhouse:8123/tests';

test.each([
  [
    'nothing named, Docker answers: containers for both',
    {},
    true,
    { kafka: { kind: 'container' }, clickhouse: { kind: 'container' } },
  ],
  [
    'nothing named, no Docker: what this machine has',
    {},
    false,
    { kafka: { kind: 'own' }, clickhouse: { kind: 'own' } },
  ],
  [
    'what is named is taken',
    { KAFKA_BROKERS: brokers, CLICKHOUSE_URL: url },
    true,
    { kafka: { kind: 'given', brokers }, clickhouse: { kind: 'given', url } },
  ],
  [
    'only Kafka named',
    { KAFKA_BROKERS: brokers },
    true,
    { kafka: { kind: 'given', brokers }, clickhouse: { kind: 'container' } },
  ],
  [
    'only ClickHouse named, no Docker',
    { CLICKHOUSE_URL: url },
    false,
    { kafka: { kind: 'own' }, clickhouse: { kind: 'given', url } },
  ],
] as const)('%s', async (_, named, docker, expected) => {
  expect(
    await choose({ KAFKA_BROKERS: undefined, CLICKHOUSE_URL: undefined, ...named }, () => Promise.resolve(docker)),
  ).toEqual(expected);
});

test('Docker is not asked where everything is named', async () => {
  await expect(
    choose({ KAFKA_BROKERS: brokers, CLICKHOUSE_URL: url }, () => Promise.reject(new Error('asked'))),
  ).resolves.toBeDefined();
});

test('the tests run on the ClickHouse of docker-compose.yml', () => {
  const { services } = parse(readFileSync(new URL('../../docker-compose.yml', import.meta.url), 'utf8'), {
    merge: true,
  }) as { services: { clickhouse: { image: string } } };
  expect(services.clickhouse.image).toBe(CLICKHOUSE_TEST_IMAGE);
});
