import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sources, type SourceName } from '../../common/sources.ts';
import type { Status } from '../../services/console/wire.ts';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { kafkaBrokers, produce, uniqueName } from '../harness/kafka.ts';
import { freePort } from '../../common/kafka/local-broker/local-broker.ts';
import { endAll, startScript, type Service } from '../harness/service.ts';
import { waitFor } from '../harness/wait-for.ts';
import { launchBrowser } from './chromium.ts';
import { drawnChart, visit, type Visit } from './visit.ts';

// The console of `npm start` with real Kafka, as a newcomer and an operator use it. The tests follow each other on one
// system.
const folder = temporaryFolder();
const suffix = uniqueName('console');
const topicOf = (source: SourceName): string => `${source}.${suffix}`;
const topics = sources.map((s) => `${s.name}=${topicOf(s.name)}`).join(',');
let browser: Browser;
let sluice: Service;
let address: string;
let settings: Record<string, string>;
let key: string;
const visits: Visit[] = [];
/** the time of 25 events of auth_logs that become dead letters, and later may be replayed; unix milliseconds */
let lettersAhead: number;

async function start(): Promise<Service> {
  const started = startScript('start', settings);
  let ended: number | null | undefined;
  started.child.once('close', (code) => {
    ended = code;
  });
  await waitFor(
    () => {
      if (ended !== undefined) throw new Error(`ended with ${ended}: ${started.stderr()}`);
      return started.stdout().includes('sluice is ready at');
    },
    60_000,
    'npm start is ready',
  );
  return started;
}

async function open(hash: string): Promise<Visit> {
  const made = await visit(browser, address, { key });
  visits.push(made);
  await made.page.goto(`${address}/${hash}`);
  return made;
}

async function askStatus(): Promise<Status> {
  const response = await fetch(`${address}/api/status`, { headers: { 'x-api-key': key } });
  return ((await response.json()) as { result: Status }).result;
}

const shownEvents = async (page: Page, topic: string): Promise<number> =>
  Number((await page.locator(`[data-topic="${topic}"]`).textContent())?.replaceAll(',', ''));

beforeAll(async () => {
  const port = await freePort();
  address = `http://127.0.0.1:${port}`;
  settings = {
    DATA_DIR: folder.path,
    KAFKA_BROKERS: kafkaBrokers().join(','),
    KAFKA_GROUP_ID: suffix,
    PORT: String(port),
    KAFKA_TOPICS: topics,
  };
  [browser, sluice] = await Promise.all([launchBrowser(), start()]);
  key = readFileSync(join(folder.path, 'api-key'), 'utf8').trim();
  // an hour ahead and half a minute: refused now, and fine when the first tests are over
  lettersAhead = Date.now() + 3_600_000 + 30_000;
  await produce(
    Array.from({ length: 25 }, (_, i) => ({
      topic: topicOf('auth_logs'),
      value: JSON.stringify({
        timestamp: new Date(lettersAhead).toISOString(),
        project: 'later',
        event_message: `letter ${i}`,
      }),
      headers: [['trace', `t${i}`] as const],
      key: 'k',
    })),
  );
});
afterAll(async () => {
  for (const v of visits) await v.close();
  await browser?.close();
  await endAll();
  folder.remove();
});

test("a newcomer's first minute: the printed address signs in, the demo starts, and within half a minute the charts move and equal what the service says", async () => {
  const [printed, token] = /console: (\S+#token=(\S+)) /.exec(sluice.stdout())!.slice(1) as [string, string];
  const first = await visit(browser, address);
  visits.push(first);
  const sizes: Promise<number>[] = [];
  first.page.on('response', (response) =>
    sizes.push(
      response
        .request()
        .sizes()
        .then(
          (s) => s.responseBodySize + s.responseHeadersSize,
          () => 0,
        ),
    ),
  );
  await first.page.goto(printed);
  await first.page.getByRole('heading', { name: 'Overview' }).waitFor();
  const loaded = (await Promise.all(sizes)).reduce((a, b) => a + b, 0);
  expect(loaded).toBeLessThan(200_000);
  expect(first.page.url()).not.toContain('token');
  expect(await first.page.evaluate(() => [localStorage.length, document.cookie])).toEqual([0, '']);

  const demo = startScript(
    'demo',
    { KAFKA_BROKERS: settings['KAFKA_BROKERS']!, KAFKA_TOPICS: topics, PORT: settings['PORT']!, DATA_DIR: folder.path },
    ['--rate', '50'],
  );
  await waitFor(
    async () => {
      const { curves } = await drawnChart(first.page, 'Events');
      // the letters are of auth_logs
      return Object.entries(curves).some(
        ([topic, values]) => topic !== topicOf('auth_logs') && values.some((v) => (v ?? 0) > 0),
      );
    },
    30_000,
    'the chart of events moves',
  );
  await waitFor(
    async () => (await askStatus()).system!.topics.every((t) => t.events_last_hour > 0),
    30_000,
    'every topic has events',
  );
  await demo.end();

  // all of it is written: from here on nothing changes but the time
  const settled = await waitFor(
    async () => {
      const [before, after] = [
        await askStatus(),
        await new Promise<Status>((resolve, reject) => {
          setTimeout(() => {
            askStatus().then(resolve, reject);
          }, 1500);
        }),
      ];
      const count = (s: Status): number => s.system!.topics.reduce((sum, t) => sum + t.events_last_hour, 0);
      return count(before) === count(after) && after.system!.topics.every((t) => t.lag_now === 0) ? after : undefined;
    },
    60_000,
    'everything is ingested',
  );
  for (const { topic, events_last_hour: events } of settled.system!.topics) {
    expect(events).toBeGreaterThan(0);
    await waitFor(async () => (await shownEvents(first.page, topic)) === events, 5_000, `${topic} shows ${events}`);
  }
  // and what the service says is what the ledger has
  const response = await fetch(`${address}/api/commands/reconcile`, {
    method: 'POST',
    headers: { 'x-api-key': key },
    body: '{}',
  });
  const { result } = (await response.json()) as {
    result: { partitions: { topic: string; stored: number | string; dead_lettered: number | string }[] };
  };
  for (const { topic, events_last_hour: events } of settled.system!.topics) {
    expect({ topic, events }).toEqual({
      topic,
      events: result.partitions
        .filter((p) => p.topic === topic)
        .reduce((sum, p) => sum + Number(p.stored) + Number(p.dead_lettered), 0),
    });
  }
  // Step by step, and all steps together are all events. The step that still runs is not drawn: ten seconds at most.
  await waitFor(
    async () => {
      const { from, system } = await askStatus();
      const { times, curves } = await drawnChart(first.page, 'Events');
      for (const { topic, events, events_last_hour: all } of system!.topics) {
        const drawn = new Map(times.map((t, i) => [t, Math.round((curves[topic]![i] ?? 0) * 10)]));
        expect({ topic, drawn: events.map((_, k) => drawn.get(from + k * 10) ?? 0) }).toEqual({ topic, drawn: events });
        expect({ topic, sum: [...drawn.values()].reduce((sum, n) => sum + n, 0) }).toEqual({ topic, sum: all });
      }
      return true;
    },
    20_000,
    'the chart shows every event in its step',
  );

  // the token is used up; nothing has written it or the key into a log
  const second = await visit(browser, address);
  visits.push(second);
  await second.page.goto(`${address}/#token=${token}`);
  await second.page.getByText('The sign-in link is used up or older than ten minutes.').waitFor();
  expect(sluice.stderr()).not.toContain(key);
  expect(sluice.stderr()).not.toContain(token);
  expect(
    sluice
      .stderr()
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('{') && !line.startsWith('npm ')),
  ).toEqual([]);
  expect([...first.errors, ...first.outside, ...second.errors]).toEqual([]);
});

test('an event is seen within three seconds of its acknowledgement by Kafka', async () => {
  const { page } = await open('#/overview');
  const topic = topicOf('storage_logs');
  await page.locator(`[data-topic="${topic}"]`).waitFor();
  for (let i = 0; i < 3; i++) {
    // produced right after the page was brought up to date, so that luck helps nobody
    const before = await shownEvents(page, topic);
    await produce([{ topic, value: JSON.stringify({ event_message: 'hello', metadata: { project: 'p' } }) }]);
    const seen = await waitFor(
      async () => (await shownEvents(page, topic)) > before && (await shownEvents(page, topic)),
      3_000,
      'the event is counted',
    );
    expect(seen).toBe(before + 1);
  }
});

test('a key is made in the page, shown once, works, and its session ends when it is revoked', async () => {
  const { page } = await open('#/keys');
  await page.getByText('New key').click();
  await page.getByLabel('Name').fill('made here');
  await page.getByRole('button', { name: 'Make the key' }).click();
  const made = (await page.locator('#made-key').textContent())!;
  await page.locator('dialog').getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: 'Revoke made here' }).waitFor();
  expect(await page.content()).not.toContain(made);

  const other = await visit(browser, address, { key: made });
  visits.push(other);
  await other.page.goto(address);
  await other.page.getByText('Your key made here sees').waitFor();
  await page.getByRole('button', { name: 'Revoke made here' }).click();
  await page.getByRole('button', { name: 'Revoke the key' }).click();
  await other.page.getByText('You were signed out').waitFor({ timeout: 15_000 });
  await page.getByText('No keys yet.').waitFor();
});

test('a key is rotated in the page: its new key is shown once, and both work until the chosen time is over', async () => {
  const { page, errors } = await open('#/keys');
  const works = async (of: string): Promise<number> =>
    (await fetch(`${address}/api/status`, { headers: { 'x-api-key': of } })).status;
  const shown = async (): Promise<string> => {
    const text = (await page.locator('#made-key').textContent())!;
    await page.locator('dialog').getByRole('button', { name: 'Close' }).click();
    expect(await page.content()).not.toContain(text);
    return text;
  };
  await page.getByText('New key').click();
  await page.getByLabel('Name').fill('turned');
  await page.getByRole('button', { name: 'Make the key' }).click();
  const first = await shown();

  const rotate = async (goesOnFor: string): Promise<string> => {
    await page.getByRole('button', { name: 'Rotate turned' }).first().click();
    await page.getByLabel('The old key stays valid for').selectOption(goesOnFor);
    await page.getByRole('button', { name: 'Rotate the key' }).click();
    return await shown();
  };
  const second = await rotate('an hour');
  expect(second).not.toBe(first);
  expect([await works(first), await works(second)]).toEqual([200, 200]);
  await page.getByRole('button', { name: 'Revoke turned' }).nth(1).waitFor();
  const keys = async (): Promise<{ name: string; expires_at: string | null; scopes: string[] }[]> =>
    ((await (await fetch(`${address}/api/keys`, { headers: { 'x-api-key': key } })).json()) as { keys: never[] }).keys;
  const [old, made] = (await keys())
    .filter(({ name }) => name === 'turned')
    .toSorted((a, b) => Number(a.expires_at === null) - Number(b.expires_at === null));
  const left = (Date.parse(old!.expires_at!) - Date.now()) / 1000;
  expect([left > 3_000, left <= 3_600, made!.expires_at, made!.scopes]).toEqual([true, true, null, old!.scopes]);

  for (const _ of [1, 2]) {
    await page.getByRole('button', { name: 'Revoke turned' }).first().click();
    await page.getByRole('button', { name: 'Revoke the key' }).click();
    await page.getByText('It stops working everywhere').waitFor({ state: 'hidden' });
  }
  await page.getByText('No keys yet.').waitFor();
  await waitFor(async () => (await works(first)) === 401 && (await works(second)) === 401, 15_000, 'both are revoked');
  expect(errors).toEqual([]);
});

test('a dead letter is replayed, and all of a filter are, with progress and a result', async () => {
  const topic = topicOf('auth_logs');
  const { page, errors } = await open(`#/dead-letters?topic=${topic}&reason=timestamp_out_of_range&open=true`);
  await waitFor(
    async () => (await askStatus()).system!.dead_letter_totals?.some((t) => t.topic === topic && t.letters === 25),
    45_000,
    '25 dead letters',
  );
  await page.getByRole('button', { name: 'Replay 25 of' }).waitFor();
  await page.reload();
  await page.getByRole('button', { name: /^Open/ }).first().click();
  await page.locator('dialog pre').waitFor();
  expect(await page.locator('dialog pre').textContent()).toContain('"project":"later"');
  expect(await page.locator('dialog .properties').textContent()).toMatch(/Keyk.*Headerstrace t\d+/s);
  await waitFor(() => Date.now() > lettersAhead - 3_600_000 + 500, 60_000, 'the letters are no longer ahead');
  await page.locator('dialog').getByRole('button', { name: 'Replay' }).click();
  await page.getByText('Result: 1 stored.').waitFor();
  await page.locator('dialog').getByRole('button', { name: 'Close' }).click();

  await page.getByRole('button', { name: 'Replay 24 of' }).click();
  await page.getByText('24 of 24 tried, done: 24 stored').waitFor({ timeout: 60_000 });
  await page.getByText('No dead letter matches.').waitFor();
  // totals are some seconds old
  const totals = await waitFor(
    async () =>
      (await askStatus()).system!.dead_letter_totals?.find(
        (t) => t.topic === topic && t.reason === 'timestamp_out_of_range' && t.replayed > 24,
      ),
    20_000,
    'all of them are marked',
  );
  expect(totals).toMatchObject({ letters: 25, replayed: 25 });
  expect(errors).toEqual([]);
}, 240_000);

test('where the service is restarted under an open page, the page says so and goes on by itself', async () => {
  const { page } = await open('#/overview');
  await page.locator('.tiles').waitFor();
  const topic = topicOf('storage_logs');
  const before = await shownEvents(page, topic);
  await sluice.end();
  await page.getByText('The service does not answer').waitFor();
  sluice = await start();
  await page.getByText('The service was restarted.').waitFor();
  expect(await page.getByText('The service does not answer').count()).toBe(0);
  // also before the new process has read what ClickHouse holds
  expect(await shownEvents(page, topic)).toBe(before);
  await produce([{ topic, value: JSON.stringify({ event_message: 'after', metadata: { project: 'p' } }) }]);
  await waitFor(async () => (await shownEvents(page, topic)) === before + 1, 20_000, 'the page is live again');
});
