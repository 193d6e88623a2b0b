import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../../common/config/settings.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import { BUILT_IN } from '../../../services/query/definition/definition-files.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { call, openEngine, send, startService, store, type Engine, type Row } from './service.ts';

/**
 * The tests of an endpoint are data beside it, `<name>.cases.yaml`: the moment, the events that there are, calls and
 * what they answer.
 * Taken from the endpoints that come with the service, from examples/endpoints, and from ENDPOINTS_DIR where it is set.
 */
interface Case {
  readonly name: string;
  readonly parameters: Record<string, string>;
  /** 200 unless said otherwise */
  readonly status?: number;
  /** all rows, in order */
  readonly rows?: Row[];
  /** how many rows */
  readonly count?: number;
  /** rows that are among them */
  readonly contains?: Row[];
  /** the wrong parameters, in order */
  readonly wrong?: string[];
}
interface CaseFile {
  readonly now: string;
  readonly events: Partial<Record<SourceName, Row[]>>;
  readonly cases: Case[];
}

const EXAMPLES = fileURLToPath(new URL('../../../examples/endpoints', import.meta.url));
const { ENDPOINTS_DIR } = readSettings();
const files = [BUILT_IN, EXAMPLES, ...(ENDPOINTS_DIR === undefined ? [] : [ENDPOINTS_DIR])].flatMap((folder) =>
  readdirSync(folder)
    .filter((f) => f.endsWith('.sql'))
    .map((f): [string, string] => [basename(f, '.sql'), folder]),
);

describe.each(files)('%s', (endpoint, folder) => {
  const file = parse(readFileSync(join(folder, `${endpoint}.cases.yaml`), 'utf8')) as CaseFile;
  const now = Date.parse(file.now);
  let engine: Engine;
  let service: QueryService;
  beforeAll(async () => {
    engine = await openEngine();
    for (const { name } of sources) {
      const events = file.events[name] ?? [];
      if (events.length > 0)
        await store(
          engine.clickhouse,
          name,
          events.map((e) => JSON.stringify(e)),
          { now },
        );
    }
    service = await startService(
      engine.clickhouse,
      engine.dataDir,
      folder === BUILT_IN ? {} : { ENDPOINTS_DIR: folder },
      { clock: () => now },
    );
    await service.ready;
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it('is in /openapi.json', async () => {
    const { paths } = JSON.parse((await send(service.address, '/openapi.json')).text) as {
      paths: Record<string, object>;
    };
    expect(Object.keys(paths)).toContain(`/api/endpoints/${endpoint}`);
  });

  it.each(file.cases.map((c): [string, Case] => [c.name, c]))(
    '%s',
    async (_, { parameters, status = 200, rows, count, contains, wrong }) => {
      const reply = await call(service, endpoint, parameters);
      expect([reply.status, reply.status === status ? '' : reply.text]).toEqual([status, '']);
      if (rows !== undefined) expect(reply.rows).toEqual(rows);
      if (count !== undefined) expect(reply.rows).toHaveLength(count);
      if (contains !== undefined) expect(reply.rows).toEqual(expect.arrayContaining(contains));
      if (wrong !== undefined) expect(reply.error.errors?.map((e) => e.parameter)).toEqual(wrong);
    },
  );
});
