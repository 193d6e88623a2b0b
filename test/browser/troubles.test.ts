import { writeFileSync } from 'node:fs';
import type { Browser, Page, Route } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../common/clock.ts';
import { commandRoutes } from '../../common/command/command-routes.ts';
import { keyFile } from '../../common/config/data-folder.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startConsole, type Console } from '../../services/console/console.ts';
import type { ChartElement } from '../../services/console/page/chart.ts';
import type { Status } from '../../services/console/wire.ts';
import { keysCommand } from '../../services/query/commands/keys.ts';
import type { QueryService } from '../../services/query/service.ts';
import { API_KEY, logger, openEngine, send, startService, type Engine } from '../integration/query/service.ts';
import { waitFor } from '../harness/wait-for.ts';
import { launchBrowser } from './chromium.ts';
import { drawnChart, expectFits, visit, type Visit, type VisitOptions } from './visit.ts';

// What a page does when something comes late, is refused, or is done in an unusual order. Answers are made up where
// their content does not matter.
let browser: Browser;
let engine: Engine;
let service: QueryService;
let console_: Console;
const visits: Visit[] = [];

async function open(
  hash: string,
  options: VisitOptions = { key: API_KEY },
  before?: (fresh: Page) => Promise<unknown>,
) {
  const made = await visit(browser, service.address, options);
  visits.push(made);
  await before?.(made.page);
  await made.page.goto(`${service.address}/${hash}`);
  return made;
}
const go = (page: Page, hash: string) => page.goto(`${service.address}/${hash}`);
/** Two frames later, all that an event has caused is drawn. */
const drawn = (page: Page) =>
  page.evaluate(
    () =>
      new Promise<void>((resolve) => {
        requestAnimationFrame(() => {
          requestAnimationFrame(() => resolve());
        });
      }),
  );
const json = (route: Route, body: object) => route.fulfill({ json: body });

interface Counted {
  calls: { encode: number; decode: number; atob: number; padEnd: number };
  copied: string;
}

/** Counts calls that take long on megabytes; `padEnd` is called once for each line of a dump. Keeps what is copied. */
const countCalls = (fresh: Page) =>
  fresh.addInitScript(() => {
    const counted: Counted = { calls: { encode: 0, decode: 0, atob: 0, padEnd: 0 }, copied: '' };
    Object.assign(globalThis, { counted });
    const count = (owner: object, name: keyof Counted['calls']): void => {
      const original = Reflect.get(owner, name) as (...args: unknown[]) => unknown;
      Reflect.set(owner, name, function counting(this: unknown, ...args: unknown[]) {
        counted.calls[name]++;
        return original.apply(this, args);
      });
    };
    count(TextEncoder.prototype, 'encode');
    count(TextDecoder.prototype, 'decode');
    count(globalThis, 'atob');
    count(String.prototype, 'padEnd');
    Object.defineProperty(navigator, 'clipboard', {
      value: {
        writeText: async (text: string): Promise<void> => {
          counted.copied = text;
        },
      },
    });
  });
const counted = (page: Page) => page.evaluate(() => (globalThis as unknown as { counted: Counted }).counted);

/** Returns what the calls are once the page has been drawn with three more states of the service. */
async function laterCounted(page: Page): Promise<Counted> {
  for (let i = 0; i < 3; i++) await page.waitForResponse('**/api/status*');
  await drawn(page);
  return await counted(page);
}

beforeAll(async () => {
  [browser, engine] = await Promise.all([launchBrowser(), openEngine()]);
  const registry = createRegistry();
  writeFileSync(keyFile(engine.dataDir), `${API_KEY}\n`);
  const settings = { API_KEY: undefined, DATA_DIR: engine.dataDir, HOST: '127.0.0.1' };
  console_ = startConsole({ clickhouse: engine.clickhouse, settings, registry, logger, clock: systemClock });
  const context = { clickhouse: engine.clickhouse, settings: readSettings({}), logger };
  const routes = [...console_.routes, ...commandRoutes(context, [keysCommand])];
  service = await startService(engine.clickhouse, engine.dataDir, {}, { registry, routes });
});
afterAll(async () => {
  for (const v of visits) await v.close();
  await browser?.close();
  await service?.stop();
  await console_?.stop();
  await engine?.close();
});

describe('the sign-in', () => {
  test('takes a link that is pasted into an open tab, and its token stays nowhere', async () => {
    const { page } = await open('', {});
    await page.getByLabel('API key').waitFor();
    await go(page, `#token=${console_.issueSignInToken()}`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(page.url()).not.toContain('token');
    await go(page, '#token=usedup');
    await waitFor(() => !page.url().includes('token'), 5_000, 'the token is gone');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  });

  test('says so where the browser blocks the storage of the page', async () => {
    const { page, errors } = await open('', {}, (fresh) =>
      fresh.addInitScript(() => {
        for (const name of ['sessionStorage', 'localStorage'])
          Object.defineProperty(globalThis, name, {
            get: () => {
              throw new DOMException('denied', 'SecurityError');
            },
          });
      }),
    );
    await page.getByText('Allow this site to store data').waitFor();
    expect(errors).toEqual([]);
  });
});

describe('a state that cannot be had', () => {
  test('is told as the service refuses it, and asked for again when the service says', async () => {
    const { page } = await open('#/overview');
    await page.locator('.tiles').waitFor();
    const asked: number[] = [];
    await page.route('**/api/status*', async (route) => {
      asked.push(performance.now());
      await route.fulfill({
        status: 429,
        headers: { 'retry-after': '4' },
        json: { error: { code: 'rate_limited', message: 'too many requests', status: 429 } },
      });
    });
    await page.getByText('Too many requests').waitFor();
    expect(await page.getByText('does not answer').count()).toBe(0);
    await waitFor(() => asked.length === 2, 10_000, 'it is asked for again');
    expect(asked[1]! - asked[0]!).toBeGreaterThan(3_900);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.getByText('The service answers again.').waitFor();
  });

  test('is told once while nothing answers, not again with every attempt', async () => {
    const { page } = await open('#/overview');
    await page.locator('.tiles').waitFor();
    let asked = 0;
    await page.route('**/api/status*', async (route) => {
      asked++;
      await route.abort();
    });
    await page.getByText('The service does not answer').waitFor();
    const told = await page.locator('[aria-live]').textContent();
    const before = asked;
    await waitFor(() => asked > before + 3, 10_000, 'further attempts');
    expect(await page.locator('[aria-live]').textContent()).toBe(told);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });
});

test.each([390, 1280])(
  'at %i pixels a long name is wrapped, and leaves a legend its colour and value',
  async (width) => {
    const topic = `logs.${'x'.repeat(130)}`;
    const { page } = await open('#/overview', { key: API_KEY, viewport: { width, height: 844 } }, (fresh) =>
      fresh.route('**/api/status*', async (route) => {
        const { result } = (await (await route.fetch()).json()) as { result: Status };
        const [series, alerts] = [Array.from({ length: result.steps }, () => 1), result.system!.alerts];
        const system: Status['system'] = {
          ...result.system!,
          topics: [
            {
              topic,
              source: topic,
              events: series,
              events_last_hour: 1,
              age_ms: series,
              newest_ms: 1,
              lag: series,
              lag_now: 1,
            },
          ],
          alerts: alerts.map((a, i) => ({
            ...a,
            ...(i < 2 && {
              state: i === 0 ? 'firing' : 'pending',
              subjects: [{ name: topic, value: 'does not move', state: 'pending' }],
            }),
          })),
          dead_letter_totals: [{ topic, reason: 'not_json', letters: 2, replayed: 1 }],
        };
        await json(route, { result: { ...result, system } });
      }),
    );
    for (const of of ['.legend', '.alert.firing', '.alert.pending'])
      await page.locator(of, { hasText: topic }).first().waitFor();
    await expectFits(page);
    const [swatch, value] = ['i', 'b'].map((of) => page.locator('.legend').first().locator(of));
    expect([(await swatch!.boundingBox())!.width, (await value!.boundingBox())!.height]).toEqual([9, 18]);
    await go(page, `#/dead-letters?topic=${topic}&reason=not_json&open=true`);
    await page.getByRole('button', { name: `Replay 1 of ${topic}, not_json` }).waitFor();
    await expectFits(page);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  },
);

describe('a dialog', () => {
  const focused = (page: Page) => page.evaluate(() => document.activeElement?.textContent);
  /** Presses within the dialog and lets go beside it, as who selects a text with the mouse does. */
  async function selectBeyond(page: Page): Promise<void> {
    const { x, y } = (await page.locator('dialog p').first().boundingBox())!;
    await page.mouse.move(x + 5, y + 5);
    await page.mouse.down();
    await page.mouse.move(4, 4, { steps: 5 });
    await page.mouse.up();
    await drawn(page);
  }

  test('of a new key is closed by its button only', async () => {
    const { page } = await open('#/keys');
    await page.getByText('New key').click();
    await page.getByLabel('Name').fill('once');
    await page.getByRole('button', { name: 'Make the key' }).click();
    await page.locator('#made-key').waitFor();
    await selectBeyond(page);
    await page.mouse.click(4, 4);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await drawn(page);
    expect(await page.locator('#made-key').isVisible()).toBe(true);
    await page.locator('dialog').getByRole('button', { name: 'Close' }).click();
    await page.locator('dialog').waitFor({ state: 'detached' });
  });

  test('is closed by a click beside it, and gives the focus back however it is closed', async () => {
    await send(service.address, '/api/keys', {
      method: 'POST',
      headers: { 'x-api-key': API_KEY },
      body: JSON.stringify({ name: 'turned', scopes: ['query'] }),
    });
    const { page } = await open('#/keys');
    const rotate = page.getByRole('button', { name: 'Rotate turned' }).first();
    const dialog = page.locator('dialog');
    const isGone = async (): Promise<void> => {
      await dialog.waitFor({ state: 'detached' });
      expect(await focused(page)).toBe('Rotate turned');
    };
    await rotate.click();
    await dialog.waitFor();
    await selectBeyond(page);
    expect(await dialog.isVisible()).toBe(true);
    await page.mouse.click(4, 4);
    await isGone();
    await rotate.click();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await isGone();
    await rotate.click();
    await page.getByRole('button', { name: 'Rotate the key' }).click();
    await page.locator('#made-key').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await isGone();
  });
});

test('a new key: a mistake is told once, at its field, and its end is read in the zone of the page', async () => {
  const { page } = await open('#/keys');
  await page.getByText('New key').click();
  await page.getByRole('button', { name: 'UTC', exact: true }).click();
  await page.getByLabel('Name').fill('ends');
  await page.getByLabel('Expires (UTC)').fill('2099-03-01T10:00');
  await page.getByLabel('query', { exact: true }).click();
  await page.getByRole('button', { name: 'Make the key' }).click();
  const told = page.getByText('must have at least one of');
  await told.waitFor();
  expect(await told.count()).toBe(1);
  const wrong = page.locator('.create [aria-invalid="true"]').first();
  expect(await page.locator(`#${await wrong.getAttribute('aria-describedby')}`).textContent()).toContain(
    'at least one',
  );
  await page.getByLabel('query', { exact: true }).click();
  const asked = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/api/keys'));
  await page.getByRole('button', { name: 'Make the key' }).click();
  expect((await asked).postDataJSON()).toMatchObject({ scopes: ['query'], expires_at: '2099-03-01T10:00:00.000Z' });
  await page.locator('#made-key').waitFor();
  expect(await page.locator('.create [aria-invalid]').count()).toBe(0);
});

describe('Explore', () => {
  test('reads the endpoints again if that failed', async () => {
    const { page } = await open('#/explore', { key: API_KEY }, (fresh) =>
      fresh.route('**/openapi.json', (route) => route.abort(), { times: 1 }),
    );
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('link', { name: 'logs.all' }).waitFor();
    expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0);
  });

  test.each([
    ['a link with a space as %20', 'project=a%20b'],
    ['a page of older entries', 'project=p&iso_timestamp_end=2026-03-01T09%3A00%3A00Z&shown=1'],
  ])('asks again on %s', async (_, query) => {
    let asked = 0;
    const { page } = await open(`#/explore/logs.all?${query}`, { key: API_KEY }, (fresh) =>
      fresh.route('**/api/endpoints/*', async (route) => {
        asked++;
        await json(route, { result: [] });
      }),
    );
    await page.locator('.result').waitFor();
    expect(asked).toBe(1);
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await waitFor(() => asked === 2, 5_000, 'a second call');
  });

  test('may be asked again once a call under way has become incomplete', async () => {
    const { page } = await open('#/explore/logs.all?project=p', { key: API_KEY }, (fresh) =>
      fresh.route('**/api/endpoints/*', () => undefined),
    );
    await page.getByRole('button', { name: 'Asking…' }).waitFor();
    await go(page, '#/explore/logs.all');
    await page.getByText('Nothing asked yet.').waitFor();
    expect(await page.getByRole('button', { name: 'Ask', exact: true }).isEnabled()).toBe(true);
  });

  test('says where to find a project of the demo', async () => {
    const { page } = await open('#/explore/logs.all');
    expect(await page.locator('.empty p').innerHTML()).toBe(
      'Fill in the required parameters. <code>npm run demo</code> names its busiest project when it starts.',
    );
  });

  test('reads a large answer once, and not with every state of the service', async () => {
    const { page } = await open('#/explore/logs.all?project=p', { key: API_KEY }, async (fresh) => {
      await countCalls(fresh);
      await fresh.route('**/api/endpoints/*', (route) => json(route, { result: [{ text: 'x'.repeat(1 << 20) }] }));
    });
    await page.locator('.result .facts').getByText('1.0 MiB').waitFor();
    const { calls } = await counted(page);
    expect((await laterCounted(page)).calls).toEqual(calls);
  });

  test('draws each answer in its own step, and shows numbers as they are', async () => {
    const [monday, day] = [1_772_409_600, 86_400];
    const rows = (from: number, step: number, count: number) =>
      Array.from({ length: count }, (_, i) => ({ timestamp: (from + i * step) * 1e6, count: 12_345, share: 0.004 }));
    const { page } = await open(
      '#/explore/functions.invocation-stats?project=p&interval=7day',
      { key: API_KEY },
      (fresh) =>
        fresh.route('**/api/endpoints/*', (route) =>
          json(route, {
            result: route.request().url().includes('7day')
              ? rows(monday, day, 7)
              : rows(monday, 60, route.request().url().includes('1hr') ? 1 : 5),
          }),
        ),
    );
    const plot = () =>
      page.locator('.plot').evaluate((element) => {
        const { scales, bbox } = (element as ChartElement).plot!;
        return { x: [scales['x']!.min, scales['x']!.max], height: bbox.height };
      });
    await drawnChart(page, 'functions.invocation-stats');
    const week = await plot();
    expect(week.x).toEqual([monday - day / 2, monday + 6.5 * day]);
    expect(await page.locator('.result tbody tr').first().locator('td.number').allTextContents()).toEqual([
      '12,345',
      '0.004',
    ]);
    await page.getByLabel('interval').selectOption('5min');
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await page.locator('.result[data-query*="5min"]').waitFor();
    await drawn(page);
    const minutes = await plot();
    expect(minutes.x).toEqual([monday - 30, monday + 4.5 * 60]);
    // below the times of a week stand its dates
    expect(minutes.height).toBeGreaterThan(week.height);
    // the width of a bucket alone is unknown
    await go(page, '#/explore/functions.invocation-stats?project=p&interval=1hr');
    await page.locator('.result[data-query*="1hr"]').waitFor();
    await drawn(page);
    expect((await plot()).x).toEqual([monday - 30, monday + 30]);
  });
});

describe('dead letters', () => {
  /** A page with a replay under way: its later lists, and what ends the replay. */
  async function replaying(): Promise<{ page: Page; listed: { open: boolean }[]; end: () => Promise<void> }> {
    const listed: { open: boolean }[] = [];
    const answer = Promise.withResolvers<void>();
    const { page } = await open('#/dead-letters?topic=a&open=true', { key: API_KEY }, async (fresh) => {
      await fresh.route('**/api/status*', async (route) => {
        const response = await route.fetch();
        const { result } = (await response.json()) as { result: Status };
        await json(route, { result: { ...result, system: { ...result.system, dead_letter_totals: null } } });
      });
      await fresh.route('**/api/commands/dead-letters', async (route) => {
        const args = route.request().postDataJSON() as { action: string; filter: { topic: string; open: boolean } };
        if (args.action === 'replay_all') {
          await answer.promise;
          return await json(route, { result: { replayed: { stored: 1 }, next: null } });
        }
        listed.push(args.filter);
        const place = { incarnation: 1, partition: 0, offset: 0, replayed_at: null };
        const letter = { ...place, topic: args.filter.topic, reason: 'not_json', detail: '' };
        await json(route, { result: { dead_letters: [letter], next: null } });
      });
    });
    await page.getByRole('button', { name: 'Open a 0 0' }).waitFor();
    await page.getByRole('button', { name: 'Replay all of a' }).click();
    await page.getByRole('button', { name: 'Stop' }).waitFor();
    const end = async (): Promise<void> => {
      const answered = page.waitForResponse(
        (response) => response.request().postData()?.includes('replay_all') === true,
      );
      answer.resolve();
      await (await answered).finished();
      await drawn(page);
    };
    return { page, listed, end };
  }

  test.each([
    ['text', Buffer.alloc(1 << 20, 'a')],
    ['bytes', Buffer.alloc(1 << 20, 0xff)],
  ])(
    'of a megabyte of %s are decoded once, and dumped only as far as they are shown or when they are copied',
    async (_, value) => {
      const { page } = await open('#/dead-letters?topic=a&open=true', { key: API_KEY }, async (fresh) => {
        await countCalls(fresh);
        await fresh.route('**/api/commands/dead-letters', async (route) => {
          const letter = { topic: 'a', incarnation: 1, partition: 0, offset: 0, reason: 'not_json', detail: '' };
          const [text, isShown] = [value.toString('base64'), route.request().postData()?.includes('show') === true];
          const content = { ...letter, record_time: null, key_base64: text, value_base64: text };
          const headers = [{ name: 'h', value_base64: text }];
          const list = { dead_letters: [{ ...letter, replayed_at: null }], next: null };
          await json(route, { result: isShown ? { ...content, headers } : list });
        });
      });
      await page.getByRole('button', { name: 'Open a 0 0' }).click();
      const dialog = page.locator('dialog');
      await dialog.locator('pre').waitFor();
      const { calls } = await counted(page);
      expect([calls.atob, calls.decode]).toEqual([3, 3]);
      expect(calls.padEnd).toBeLessThanOrEqual(1024 + 8);
      await dialog.getByRole('button', { name: 'Hex' }).click();
      expect((await laterCounted(page)).calls).toEqual(calls);
      await dialog.getByRole('button', { name: 'Copy' }).click();
      await dialog.getByRole('button', { name: 'Copied' }).waitFor();
      const { copied } = await counted(page);
      expect(copied.split('\n')).toHaveLength(value.length / 16);
      expect(copied).toContain(`\n0ffff0  ${[...value.subarray(0, 16)].map((b) => b.toString(16)).join(' ')}`);
    },
  );

  test('of another topic stay when a replay of the topic before ends', async () => {
    const { page, listed, end } = await replaying();
    await go(page, '#/dead-letters?topic=b&open=true');
    await page.getByRole('button', { name: 'Open b 0 0' }).waitFor();
    const before = listed.length;
    await end();
    expect(await page.getByRole('button', { name: /^Open/ }).allTextContents()).toEqual([
      expect.stringContaining(' b 0 0') as string,
    ]);
    expect(listed).toHaveLength(before);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });

  test('are listed again after a replay as they are filtered by then', async () => {
    const { page, listed, end } = await replaying();
    await page.getByLabel('only those that were not replayed').click();
    await waitFor(() => !listed.at(-1)!.open, 5_000, 'the list with the others');
    const before = listed.length;
    await end();
    await waitFor(() => listed.length > before, 5_000, 'the list after the replay');
    expect(listed.at(-1)).toMatchObject({ open: false });
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });
});
