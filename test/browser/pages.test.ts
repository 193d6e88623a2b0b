import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../common/clock.ts';
import { commandRoutes } from '../../common/command/command-routes.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startConsole, type Console } from '../../services/console/console.ts';
import type { Status } from '../../services/console/wire.ts';
import { deadLettersCommand } from '../../services/ingest/commands/dead-letters.ts';
import type { QueryService } from '../../services/query/service.ts';
import {
  API_KEY,
  call,
  logger,
  openEngine,
  send,
  startService,
  store,
  type Engine,
} from '../integration/query/service.ts';
import { waitFor } from '../harness/wait-for.ts';
import { launchBrowser } from './chromium.ts';
import { accessibilityFaults, drawnChart, expectFits, visit, type Visit, type VisitOptions } from './visit.ts';

// Every page on a real engine, beside an ingest that runs elsewhere, as `npm run query` is.
const PROJECT = 'abcdefghijklmnopqrst';
const ODD =
  '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'"> &amp; \u202e😀\ud83d {{x}} ${y} é\u0301\u0000\u2028\t"quoted"';
const LETTERS = 10_000;
const KEYS = 10_000;

let browser: Browser;
let engine: Engine;
let service: QueryService;
let console_: Console;
const visits: Visit[] = [];

async function open(hash: string, options: VisitOptions = {}): Promise<Visit> {
  const made = await visit(browser, service.address, { key: API_KEY, ...options });
  visits.push(made);
  await made.page.goto(`${service.address}/${hash}`);
  return made;
}

beforeAll(async () => {
  [browser, engine] = await Promise.all([launchBrowser(), openEngine()]);
  const now = Date.now();
  const settings = readSettings({ API_KEY, PORT: '0', DATA_DIR: engine.dataDir });
  const registry = createRegistry();
  console_ = startConsole({ clickhouse: engine.clickhouse, settings, registry, logger, clock: systemClock });
  const context = { clickhouse: engine.clickhouse, settings, logger };
  const routes = [...console_.routes, ...commandRoutes(context, [deadLettersCommand])];
  service = await startService(engine.clickhouse, engine.dataDir, {}, { registry, routes });
  const edge = (i: number, more: object = {}): string =>
    JSON.stringify({
      id: `e${String(i).padStart(4, '0')}`,
      timestamp: (now - 60_000) * 1000 - Math.floor(i / 7),
      project: PROJECT,
      event_message: `GET | 200 | ${i}`,
      metadata: {
        big: 1,
        request: {
          url: `https://${PROJECT}.supabase.co/${['rest', 'auth', 'storage'][i % 3]}/v1`,
          path: `/${['rest', 'auth', 'storage'][i % 3]}/v1`,
        },
      },
      ...more,
    });
  await store(
    engine.clickhouse,
    'edge_logs',
    [
      ...Array.from({ length: 250 }, (_, i) => edge(i)),
      edge(999, { project: 'odd', event_message: ODD, metadata: { [ODD]: { value: ODD } } }).replace(
        '"value":',
        '"digits":12345678901234567890,"value":',
      ),
    ],
    { now },
  );
  await store(
    engine.clickhouse,
    'function_edge_logs',
    Array.from({ length: 120 }, (_, i) =>
      JSON.stringify({
        timestamp: (now - (i % 12) * 60_000) * 1000,
        metadata: {
          project_ref: PROJECT,
          function_id: 'f',
          execution_time_ms: i * 10,
          response: { status_code: i % 9 === 0 ? 500 : 200 },
        },
      }),
    ),
    { now },
  );
  await store(
    engine.clickhouse,
    'auth_logs',
    Array.from({ length: LETTERS }, (_, i) => `[${i},"<b>"]`),
    { now },
  );
  await engine.clickhouse.execute({
    sql: "INSERT INTO api_keys (id, name, hash, scopes, projects, created_at) SELECT toString(generateUUIDv4()), concat('key ', leftPad(toString(number), 5, '0')), hex(SHA256(toString(number))), ['query'], [], now64(3) FROM numbers({keys:UInt32})",
    params: { keys: KEYS },
  });
});
afterAll(async () => {
  for (const v of visits) await v.close();
  await browser?.close();
  await service?.stop();
  await console_?.stop();
  await engine?.close();
});

describe('Explore', () => {
  test('draws exactly what functions.invocation-stats answers, with its empty buckets', async () => {
    const { page, errors } = await open(`#/explore/functions.invocation-stats?project=${PROJECT}&interval=15min`);
    const { times, curves } = await drawnChart(page, 'functions.invocation-stats');
    const { rows } = await call(service, 'functions.invocation-stats', { project: PROJECT, interval: '15min' });
    expect(times.map((t) => t * 1e6)).toEqual(rows.map((r) => r['timestamp']));
    for (const name of ['count', 'error_count', 'p95_execution_time', 'p99_execution_time'])
      expect({ name, values: curves[name] }).toEqual({ name, values: rows.map((r) => r[name]) });
    expect(rows.reduce((sum, r) => sum + Number(r['count']), 0)).toBe(120);
    expect(await page.locator('.result tbody tr').count()).toBe(16);
    expect(await page.locator('.facts .cache').textContent()).toMatch(/^(miss|hit)$/);
    await page.getByRole('button', { name: 'Ask' }).click();
    await waitFor(
      async () => (await page.locator('.facts .cache').textContent()) === 'hit',
      5_000,
      'the second answer comes from the cache',
    );
    expect(errors).toEqual([]);
  });

  test('draws exactly what usage.api-counts answers, by family on top of each other', async () => {
    const { page } = await open(`#/explore/usage.api-counts?project=${PROJECT}&interval=30min`);
    const { times, curves } = await drawnChart(page, 'usage.api-counts', true);
    const { rows } = await call(service, 'usage.api-counts', { project: PROJECT, interval: '30min' });
    expect(rows.length).toBeGreaterThan(0);
    for (const [i, time] of times.entries()) {
      const row = rows.find((r) => Date.parse(`${String(r['timestamp'])}Z`) === time * 1000);
      for (const [name, values] of Object.entries(curves))
        expect({ time, name, value: values[i] }).toEqual({ time, name, value: row?.[name] ?? 0 });
    }
  });

  test('shows every entry of logs.all once over its pages, also where entries share a microsecond; a link shows the same page', async () => {
    const { page } = await open(`#/explore/logs.all?project=${PROJECT}`);
    const seen: string[] = [];
    for (;;) {
      await page.locator('.events > li').first().waitFor();
      const messages = await page.locator('.events .message').allTextContents();
      seen.push(...messages);
      const next = page.getByRole('link', { name: 'Older entries' });
      if ((await next.count()) === 0) break;
      const before = await page.locator('.result').getAttribute('data-query');
      await next.click();
      await waitFor(
        async () => (await page.locator('.result').getAttribute('data-query')) !== before,
        10_000,
        'the next page',
      );
    }
    expect(seen).toHaveLength(250);
    expect(new Set(seen).size).toBe(250);
    const last = await page.locator('.events .message').allTextContents();
    await page.reload();
    await page.locator('.events > li').first().waitFor();
    expect(await page.locator('.events .message').allTextContents()).toEqual(last);
    await page.getByLabel('Filter the loaded entries').fill(last[0]!);
    expect(await page.locator('.events .message').allTextContents()).toContain(last[0]);
    expect((await page.locator('.events .message').allTextContents()).length).toBeLessThan(last.length);
  });

  test('shows an event that holds markup and odd unicode literally, and digits beyond 2^53 unchanged', async () => {
    const { page, errors } = await open('#/explore/logs.all?project=odd');
    const [row] = (await call(service, 'logs.all', { project: 'odd' })).rows;
    expect(await page.locator('.events .message').textContent()).toBe(row!['event_message']);
    await page.locator('.events summary').first().click();
    expect(await page.locator('.tree .whole').textContent()).toBe(row!['event_message']);
    const values = await page.locator('.tree .leaf .value').allTextContents();
    expect(values).toContain(row!['event_message']);
    expect(values).toContain('12345678901234567890');
    expect(await page.locator('.tree .leaf').allTextContents()).toContain(`value ${ODD}`);
    expect(await page.title()).toBe('Explore – sluice');
    expect(await page.locator('main script, main img').count()).toBe(0);
    expect(errors).toEqual([]);
  });

  test('names every wrong parameter at its field', async () => {
    const { page } = await open(
      '#/explore/logs.all?project=p&iso_timestamp_start=yesterday&iso_timestamp_end=tomorrow',
    );
    await page.locator('.failure').waitFor();
    expect(
      await page
        .locator('[aria-invalid="true"]')
        .evaluateAll((fields) => fields.map((f) => (f as HTMLInputElement).name)),
    ).toEqual(['iso_timestamp_start', 'iso_timestamp_end']);
  });

  test('a picked instant is the same in UTC and in local time', async () => {
    const { page } = await open('#/explore/logs.all?project=p');
    await page.getByLabel('iso_timestamp_end: choose in local time').fill('2026-03-01T10:00:00');
    await waitFor(
      async () => (await page.locator('[name="iso_timestamp_end"]').inputValue()) === '2026-03-01T09:00:00Z',
      5_000,
      'the local time is read in UTC',
    );
    await page.getByRole('button', { name: 'UTC', exact: true }).click();
    expect(await page.getByLabel('iso_timestamp_end: choose in UTC').inputValue()).toBe('2026-03-01T09:00');
  });

  test('the call to copy is the call, with a name in the place of the key', async () => {
    const { page } = await open(`#/explore/logs.all?project=${PROJECT}`);
    expect(await page.locator('.result .curl code').textContent()).toBe(
      `curl -H "X-API-KEY: $API_KEY" '${service.address}/api/endpoints/logs.all?project=${PROJECT}'`,
    );
    expect(await page.content()).not.toContain(API_KEY);
  });
});

describe('ten thousand', () => {
  test('dead letters are counted, and loaded a page at a time', async () => {
    const { page } = await open('#/dead-letters');
    await page.getByText('10,000').first().waitFor();
    const table = page.getByRole('region', { name: 'Dead letters', exact: true });
    await waitFor(async () => (await table.locator('tbody tr').count()) === 50, 10_000, 'the first page');
    await page.getByRole('button', { name: 'Load 100 more' }).click();
    await page.getByText('200 loaded').waitFor();
    await page.getByRole('button', { name: 'Next', exact: true }).click();
    expect(await table.locator('tbody tr').first().locator('td').nth(2).textContent()).toBe('50');
    await page.getByRole('button', { name: 'Open auth_logs 0 50' }).click();
    await page.locator('dialog pre').waitFor();
    expect(await page.locator('dialog pre').textContent()).toBe('[50,"<b>"]');
    await page.getByRole('button', { name: 'Hex' }).click();
    expect(await page.locator('dialog pre').textContent()).toContain('000000  5b 35 30 2c 22 3c 62 3e 22 5d');
  });

  test('dead letters that were not counted yet are no zero, and are listed, filtered and replayed all the same', async () => {
    const { page } = await open('#/overview');
    await page.route('**/api/status*', async (route) => {
      const response = await route.fetch();
      const json = (await response.json()) as { result: Status };
      const system = { ...json.result.system, dead_letter_totals: null };
      await route.fulfill({ response, json: { result: { ...json.result, system } } });
    });
    await page.locator('.tile', { hasText: 'Dead letters' }).getByText('unknown').waitFor();
    await page.goto(`${service.address}/#/dead-letters`);
    await page.getByText('How many there are is not known yet.').waitFor();
    await page.getByRole('button', { name: 'Open auth_logs 0 7', exact: true }).waitFor();
    await page.getByLabel('topic', { exact: true }).selectOption('auth_logs');
    expect(await page.getByRole('button', { name: 'Replay all of auth_logs' }).isEnabled()).toBe(true);
    expect(await page.getByText('There are no dead letters.').count()).toBe(0);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });

  test('keys are shown a page at a time, and found by their name', async () => {
    const { page } = await open('#/keys');
    await page.getByText('10,000 of 10,000').waitFor();
    expect(await page.locator('tbody tr').count()).toBe(50);
    await page.getByLabel('Filter').fill('key 07777');
    expect(await page.locator('tbody tr').count()).toBe(1);
    expect(await page.locator('tbody').textContent()).toContain('key 07777');
  });
});

test('an open page asks for the whole hour once a minute', async () => {
  const { page } = await open('#/overview');
  await page.locator('.tiles').waitFor();
  await page.clock.install();
  let whole = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/api/status')) whole++;
  });
  await page.reload();
  await page.locator('.tiles').waitFor();
  await page.clock.runFor(50_000);
  expect(whole).toBe(1);
  await page.clock.runFor(15_000);
  await waitFor(() => whole > 1, 10_000, 'a request for the whole hour');
  expect(whole).toBe(2);
});

test('a key limited to an endpoint and a project sees what it may, and is told what it may not', async () => {
  const name = `limited ${'w'.repeat(170)}`;
  const made = await send(service.address, '/api/keys', {
    method: 'POST',
    headers: { 'x-api-key': API_KEY },
    body: JSON.stringify({ name, scopes: ['query:logs.all'], projects: [PROJECT] }),
  });
  const { key } = JSON.parse(made.text) as { key: string };
  const { page } = await open('#/overview', { key });
  await page.getByText(`Your key ${name} is limited to projects.`).waitFor();
  await expectFits(page);
  expect(await page.locator('.charts, .tiles').count()).toBe(0);
  for (const hash of ['#/dead-letters', '#/keys']) {
    await page.goto(`${service.address}/${hash}`);
    await page.getByText(`This page needs a key with the scope admin. Your key ${name} has query:logs.all.`).waitFor();
    await expectFits(page);
  }
  await page.goto(`${service.address}/#/explore/logs.all?project=${PROJECT}`);
  await page.locator('.events > li').first().waitFor();
  await page.goto(`${service.address}/#/explore/logs.all?project=odd`);
  await page.getByText('The key may not see this project').waitFor();
  await page.goto(`${service.address}/#/explore/usage.api-counts?project=${PROJECT}&interval=daily`);
  await page.getByText('Your key may not call this endpoint').waitFor();
  const status = await send(service.address, '/api/status', { headers: { 'x-api-key': key } });
  expect(JSON.parse(status.text)).toMatchObject({
    result: { system: null, endpoints: [] },
  });
  for (const path of ['/api/commands/dead-letters', '/api/keys'])
    expect((await send(service.address, path, { method: 'POST', headers: { 'x-api-key': key } })).status).toBe(403);
});

test('the page comes up in a browser whose language Intl refuses, as Chromium names it under the locale POSIX', async () => {
  const { page, errors } = await open('', { key: '' });
  await page.context().addInitScript(() => {
    Object.defineProperty(navigator, 'language', { value: 'en-US@posix', configurable: true });
  });
  await page.reload();
  await page.getByLabel('API key').waitFor();
  expect(errors).toEqual([]);
});

test('a wrong key is refused, and none is ever kept beyond the session or written into an address', async () => {
  const { page } = await open('', { key: 'not-a-key' });
  await page.getByText('You were signed out').waitFor();
  await page.getByLabel('API key').fill('wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('This key is not valid.').waitFor();
  await page.getByLabel('API key').fill(API_KEY);
  const addresses: string[] = [];
  page.on('request', (request) => addresses.push(request.url()));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await waitFor(() => addresses.length >= 3, 10_000, 'some calls');
  expect(addresses.filter((address) => address.includes(API_KEY))).toEqual([]);
  expect(
    await page.evaluate(() => JSON.stringify([Object.entries(localStorage), document.cookie, location.href])),
  ).not.toContain(API_KEY);
});

describe.each([
  ['light', 1280],
  ['dark', 1280],
  ['light', 390],
] as const)('in %s at %i pixels', (colorScheme, width) => {
  const charts = 'figure.chart .plot canvas';
  test.each([
    ['#/overview', charts],
    [`#/explore/functions.invocation-stats?project=${PROJECT}&interval=15min`, charts],
    [`#/explore/logs.all?project=${PROJECT}`, '.events > li'],
    ['#/dead-letters', 'tbody button'],
    ['#/keys', 'tbody button'],
  ])('%s has no serious accessibility fault, fits, and loads nothing from elsewhere', async (hash, content) => {
    const { page, errors, outside, close } = await open(hash, { colorScheme, viewport: { width, height: 844 } });
    await page.locator(content).first().waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await expectFits(page);
    expect({ errors, outside }).toEqual({ errors: [], outside: [] });
    await close();
  });

  test('the sign-in has no serious accessibility fault', async () => {
    const made = await visit(browser, service.address, { colorScheme, viewport: { width, height: 844 } });
    await made.page.goto(service.address);
    await made.page.getByLabel('API key').waitFor();
    expect(await accessibilityFaults(made.page)).toEqual([]);
    await made.close();
  });
});

test('every control is reached and used by keyboard alone', async () => {
  const { page } = await open(`#/explore/functions.invocation-stats`);
  await page.getByLabel('project').waitFor();
  const reached = new Set<string>();
  for (let i = 0; i < 40 && !reached.has('Ask'); i++) {
    await page.keyboard.press('Tab');
    const name = await page.evaluate(
      () => (document.activeElement as HTMLInputElement | null)?.name || (document.activeElement?.textContent ?? ''),
    );
    reached.add(name);
    if (name === 'project') await page.keyboard.type(PROJECT);
  }
  for (const name of ['Overview', 'Keys', 'UTC', 'Sign out', 'logs.all', 'project', 'interval', 'Ask'])
    expect(reached).toContain(name);
  await page.keyboard.press('Enter');
  await page.locator('.result').waitFor();
});
