import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import avro from 'avsc';
import { compressSync } from 'lz4-napi';
import { describe, expect, test } from 'vitest';
import { sources, type SourceName } from '../common/sources.ts';
import { incidentKinds, incidentOfSlot } from './incidents.ts';
import { createPopulation } from './population.ts';
import { notations } from './timestamps.ts';
import { contentOf, createTraffic, idForms, naturalShares, type TrafficEvent, type TrafficOptions } from './traffic.ts';
import { urlShapes } from './urls.ts';

const NOW = 1_772_355_600_123_456; // 2026-03-01T09:00:00.123456Z
const base: TrafficOptions = { seed: 42, projects: 100, functionsPerProject: 10 };
const names = sources.map((s) => s.name);
const even = <T extends string>(values: readonly T[]): Record<T, number> =>
  Object.fromEntries(values.map((v) => [v, 1])) as Record<T, number>;
const everything: TrafficOptions = {
  ...base,
  shares: even(names),
  notations: even(notations),
  ids: even(idForms),
  urlShapes: even(urlShapes),
  selfHostedShare: 0.3,
  untimedShare: 0.2,
  keylessShare: 0.2,
  disorderMicros: 2_000_000,
  lateShare: 0.2,
  lateMicros: 86_400_000_000,
  aheadShare: 0.1,
  aheadMicros: 3_000_000_000,
  incidents: true,
};

/** Events a millisecond apart. */
function generate(options: TrafficOptions, count: number, source?: SourceName): TrafficEvent[] {
  const traffic = createTraffic(options);
  return Array.from({ length: count }, (_, i) => traffic.next(NOW + i * 1000, source));
}

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
function withoutNulls(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, v]) => v !== null)
      .map(([k, v]) => [k, withoutNulls(v)]),
  );
}
const typeOf = (source: SourceName): avro.Type =>
  avro.Type.forSchema(
    JSON.parse(readFileSync(join(import.meta.dirname, '../schemas', `${source}.avsc`), 'utf8')) as avro.Schema,
  );
const metadataOf = (event: TrafficEvent): Record<string, Json> => contentOf(event)['metadata'] as Record<string, Json>;
const requestOf = (event: TrafficEvent): Record<string, Json> => metadataOf(event)['request'] as Record<string, Json>;

/** Bytes of a real event: JSON, Avro; and how far the mean of generated ones may be from it. */
const sizes: Record<SourceName, [json: number, avro: number]> = {
  edge_logs: [2275, 1265],
  function_edge_logs: [1078, 686],
  function_logs: [457, 268],
  postgres_logs: [713, 336],
  auth_logs: [1283, 679],
  realtime_logs: [883, 619],
  storage_logs: [321, 186],
  postgrest_logs: [196, 108],
  pgbouncer_logs: [257, 170],
};
const SIZE_MARGIN = 0.15;

test('the same seed gives the same events, byte for byte, with every option on; another seed gives others', () => {
  const first = generate(everything, 3000);
  expect(generate(everything, 3000)).toEqual(first);
  expect(first.filter((e) => !/^[ -~]*$/.test(e.json))).toEqual([]); // ASCII: a character is a byte
  const other = generate({ ...everything, seed: 43 }, 3000);
  expect(other.filter((event, i) => event.json === first[i]!.json)).toEqual([]);
});

test('another run has other events of the same projects', () => {
  const first = generate(base, 500);
  const other = generate({ ...base, run: 1 }, 500);
  const ids = new Set(first.map((e) => contentOf(e)['id']));
  const projects = new Set(
    Array.from({ length: base.projects }, (_, rank) => createTraffic(base).population.project(rank).ref),
  );
  expect(other.some((e) => ids.has(contentOf(e)['id']))).toBe(false);
  expect(other.every((e) => projects.has(e.project))).toBe(true);
});

test('projects do not depend on the order in which they are used', () => {
  const forwards = createPopulation(1, 20, 3);
  const backwards = createPopulation(1, 20, 3);
  const ranks = Array.from({ length: 20 }, (_, i) => i);
  const refs = ranks.map((r) => forwards.project(r).ref);
  expect(ranks.toReversed().map((r) => backwards.project(r).ref)).toEqual(refs.toReversed());
  expect(new Set(refs).size).toBe(20);
  for (const ref of refs) expect(ref).toMatch(/^[a-z]{20}$/);
});

describe.each(names)('%s', (source) => {
  test.each([
    ['platform', 0],
    ['self-hosted', 1],
  ] as const)('every %s event is JSON that its schema holds completely', (_, selfHostedShare) => {
    const type = typeOf(source);
    for (const event of generate(
      { ...base, selfHostedShare, untimedShare: 0.2, urlShapes: even(urlShapes), incidents: true },
      500,
      source,
    )) {
      const content = contentOf(event) as { [key: string]: Json };
      const back = JSON.parse(JSON.stringify(type.fromBuffer(type.toBuffer(content)))) as Json;
      expect(withoutNulls(back)).toEqual(withoutNulls(content));
    }
  });

  test('the mean size is that of real events', () => {
    const type = typeOf(source);
    const events = generate(base, 1000, source);
    const json = events.reduce((sum, e) => sum + Buffer.byteLength(e.json), 0) / events.length;
    const binary = events.reduce((sum, e) => sum + type.toBuffer(contentOf(e)).length, 0) / events.length;
    expect(Math.abs(json / sizes[source][0] - 1), `${json} bytes of JSON`).toBeLessThan(SIZE_MARGIN);
    expect(Math.abs(binary / sizes[source][1] - 1), `${binary} bytes of Avro`).toBeLessThan(SIZE_MARGIN);
  });

  test('the project stands where its source keeps it, and is the key', () => {
    for (const event of generate({ ...base, selfHostedShare: 0.5 }, 200, source)) {
      const inMetadata = {
        function_edge_logs: 'project_ref',
        function_logs: 'project_ref',
        realtime_logs: 'project',
        storage_logs: 'project',
      }[source as string];
      expect(inMetadata === undefined ? contentOf(event)['project'] : metadataOf(event)[inMetadata]).toBe(
        event.project,
      );
      expect(event.key).toBe(event.project);
    }
  });
});

test('sources come in their natural proportions', () => {
  const counts = new Map<string, number>();
  const events = generate(base, 50_000);
  for (const { source } of events) counts.set(source, (counts.get(source) ?? 0) + 1);
  for (const name of names)
    expect(Math.abs((counts.get(name) ?? 0) / 500 - naturalShares[name]), `share of ${name}`).toBeLessThan(1);
  expect(Object.values(naturalShares).reduce((a, b) => a + b)).toBe(100);
});

test('only the sources that are asked for come', () => {
  expect(new Set(generate({ ...base, shares: { auth_logs: 1, storage_logs: 1 } }, 500).map((e) => e.source))).toEqual(
    new Set(['auth_logs', 'storage_logs']),
  );
});

test('without functions there are no function sources', () => {
  expect(generate({ ...base, functionsPerProject: 0 }, 2000).some((e) => e.source.startsWith('function'))).toBe(false);
});

test('few projects have most of the traffic, and every project has some', () => {
  const counts = new Map<string, number>();
  for (const { project } of generate(base, 50_000)) counts.set(project, (counts.get(project) ?? 0) + 1);
  const sorted = [...counts.values()].toSorted((a, b) => b - a);
  expect(sorted.length).toBe(100);
  expect(sorted[0]! / sorted[99]!).toBeGreaterThan(30);
});

test('edge events compress as real ones do: about 4:1 by lz4 in the 64 kB blocks of a Kafka batch', () => {
  const bytes = Buffer.concat(generate({ ...base, projects: 1000 }, 2000, 'edge_logs').map((e) => Buffer.from(e.json)));
  let compressed = 0;
  for (let i = 0; i < bytes.length; i += 65_536) compressed += compressSync(bytes.subarray(i, i + 65_536)).length;
  expect(bytes.length / compressed).toBeGreaterThan(3.5);
  expect(bytes.length / compressed).toBeLessThan(5);
});

test('execution times are whole milliseconds from 1 to 150000, spread over decades', () => {
  const times = generate(base, 5000, 'function_edge_logs')
    .map((e) => metadataOf(e)['execution_time_ms'] as number)
    .toSorted((a, b) => a - b);
  for (const t of times) expect(Number.isInteger(t) && t >= 1 && t <= 150_000).toBe(true);
  expect(times[4950]! / times[2500]!).toBeGreaterThan(5);
});

test('every status class of HTTP occurs', () => {
  const classes = generate(base, 20_000, 'function_edge_logs').map((e) =>
    Math.floor(((metadataOf(e)['response'] as Record<string, Json>)['status_code'] as number) / 100),
  );
  expect(new Set(classes)).toEqual(new Set([1, 2, 3, 4, 5]));
});

test('untimed invocations have no execution time, absent or null, and still a response', () => {
  const events = generate({ ...base, untimedShare: 1 }, 200, 'function_edge_logs').map(metadataOf);
  for (const metadata of events) {
    expect(metadata['execution_time_ms'] ?? null).toBeNull();
    expect(metadata['response']).toBeTypeOf('object');
  }
  expect(new Set(events.map((m) => 'execution_time_ms' in m)).size).toBe(2);
});

test('self-hosted edge events have no url, host or search, sorted keys, the query string in the path and at times null', () => {
  const events = generate({ ...base, selfHostedShare: 1 }, 1000, 'edge_logs');
  for (const event of events) {
    expect(Object.keys(requestOf(event))).toEqual(['headers', 'method', 'path', 'protocol']);
    const keys = Object.keys(contentOf(event));
    expect(keys).toEqual(keys.toSorted());
  }
  expect(events.some((e) => (requestOf(e)['path'] as string | null)?.includes('?'))).toBe(true);
  expect(events.some((e) => requestOf(e)['method'] === null)).toBe(true);
  const mean = events.reduce((sum, e) => sum + e.json.length, 0) / events.length;
  expect(Math.abs(mean / 688 - 1), `${mean} bytes`).toBeLessThan(0.2);
});

test('self-hosted function gateways send text only, self-hosted storage sends its context as a list', () => {
  for (const event of generate({ ...base, selfHostedShare: 1 }, 100, 'function_edge_logs'))
    expect(Object.keys(metadataOf(event))).toEqual(['project_ref']);
  for (const event of generate({ ...base, selfHostedShare: 1 }, 100, 'storage_logs'))
    expect(metadataOf(event)['context']).toBeInstanceOf(Array);
});

test('an event says the time that it is said to say', () => {
  for (const event of generate(base, 1000)) {
    expect(contentOf(event)['timestamp']).toBe(event.timestampMicros);
    expect(Math.floor(event.timestampMicros / 1000)).toBe(event.recordMillis);
  }
  for (const event of generate({ ...base, notations: { absent: 1 } }, 200)) {
    expect(contentOf(event)).not.toHaveProperty('timestamp');
    expect(event.timestampMicros).toBe(event.recordMillis * 1000);
  }
  for (const event of generate({ ...base, notations: { seconds: 1 } }, 200))
    expect(contentOf(event)['timestamp']).toBe(event.timestampMicros / 1_000_000);
});

test('without options that shift it, an event happens at the time of the call', () => {
  const traffic = createTraffic(base);
  for (let i = 0; i < 1000; i++) expect(traffic.next(NOW + i).timestampMicros).toBe(NOW + i);
});

test('ids are written in every form that is asked for', () => {
  const traffic = createTraffic({ ...base, ids: even(idForms) });
  const forms = new Set<string>();
  for (let i = 0; i < 200; i++) {
    const content = contentOf(traffic.next(NOW));
    const { id } = content;
    forms.add(
      !('id' in content)
        ? 'absent'
        : id === null
          ? 'null'
          : id === ''
            ? 'empty'
            : typeof id === 'number'
              ? 'number'
              : 'uuid',
    );
  }
  expect(forms).toEqual(new Set(idForms));
});

test('every UUID is different', () => {
  expect(new Set(generate(base, 20_000).map((e) => contentOf(e)['id'])).size).toBe(20_000);
});

/** How far 2,000 events asked for at one moment are from it, microseconds. */
function shifts(options: Partial<TrafficOptions>): number[] {
  const traffic = createTraffic({ ...base, ...options });
  return Array.from({ length: 2000 }, () => traffic.next(NOW).timestampMicros - NOW);
}

test('late, early and disordered events keep to their bounds', () => {
  const disordered = shifts({ disorderMicros: 1_000_000 });
  expect(Math.max(...disordered)).toBeLessThanOrEqual(0);
  expect(Math.min(...disordered)).toBeGreaterThan(-1_000_000);
  const late = shifts({ lateShare: 0.25, lateMicros: 86_400_000_000 });
  expect(late.filter((d) => d < 0).length / 2000).toBeCloseTo(0.25, 1);
  expect(Math.min(...late)).toBeGreaterThan(-86_400_000_000);
  expect(Math.min(...late)).toBeLessThan(-80_000_000_000);
  const ahead = shifts({ aheadShare: 1, aheadMicros: 3_600_000_000 });
  expect(Math.min(...ahead)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...ahead)).toBeLessThan(3_600_000_000);
});

test('keyless events have no key and still a project', () => {
  for (const event of generate({ ...base, keylessShare: 1 }, 100)) {
    expect(event.key).toBeNull();
    expect(event.project).toMatch(/^[a-z]{20}$/);
  }
});

test('incidents of every kind come and go, and show in the status codes of the project that they hit', () => {
  const slots = Array.from({ length: 200 }, (_, i) => incidentOfSlot(base.seed, NOW + i * 600_000_000, base.projects));
  expect(slots.some((s) => s === undefined)).toBe(true);
  expect(new Set(slots.flatMap((s) => (s === undefined ? [] : [s.kind])))).toEqual(new Set(incidentKinds));
  const outage = slots.find((s) => s?.kind === 'outage')!;
  const failures = (micros: number): number => {
    const traffic = createTraffic({ ...base, incidents: true });
    const { ref } = traffic.population.project(outage.rank);
    const events = Array.from({ length: 20_000 }, () => traffic.next(micros, 'edge_logs')).filter(
      (e) => e.project === ref,
    );
    return (
      events.filter((e) => ((metadataOf(e)['response'] as Record<string, Json>)['status_code'] as number) >= 500)
        .length / events.length
    );
  };
  expect(failures(outage.fromMicros)).toBeGreaterThan(0.5);
  expect(failures(outage.untilMicros)).toBeLessThan(0.1);
});
