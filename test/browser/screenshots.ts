import { mkdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { keyFile } from '../../common/config/data-folder.ts';
import { readSettings } from '../../common/config/settings.ts';
import { addressOf } from '../../common/http/address.ts';
import { createPopulation } from '../../demo/population.ts';
import { launchBrowser } from './chromium.ts';
import { visit } from './visit.ts';

/**
 * `npm run screenshots`: pictures of every page of the console of a running `npm start` with `npm run demo`, light,
 * dark and of a phone, in the folder screenshots/, and the README's one in docs/console.png. Some calls of the busiest
 * project are made first, so that there are requests to see.
 */
const HELP = `npm run screenshots: pictures of the console of a running npm start, beside npm run demo, in screenshots/ and docs/console.png
The service is at HOST and PORT; the key is API_KEY, else the one in DATA_DIR.
`;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const README_PICTURE = `${ROOT}docs/console.png`;
const CALLS = 40;
/** until the figures of the calls are in the charts: two steps */
const SETTLE_MS = 21_000;
const DRAWN_MS = 1_500;

if (process.argv.includes('--help')) process.stdout.write(HELP);
else await takeScreenshots();

async function takeScreenshots(): Promise<void> {
  const settings = readSettings();
  const address = addressOf(settings.HOST, settings.PORT);
  const key = settings.API_KEY ?? readFileSync(keyFile(settings.DATA_DIR), 'utf8').trim();
  const project = createPopulation(1, 1, 0).project(0).ref;
  const endpoints = [
    `functions.invocation-stats?project=${project}&interval=15min`,
    `usage.api-counts?project=${project}&interval=30min`,
    `logs.all?project=${project}`,
  ];
  for (let i = 0; i < CALLS; i++) {
    for (const endpoint of endpoints)
      await fetch(`${address}/api/endpoints/${endpoint}`, { headers: { 'x-api-key': key } });
    await sleep(SETTLE_MS / CALLS);
  }
  mkdirSync(`${ROOT}screenshots`, { recursive: true });
  const browser = await launchBrowser();
  try {
    const pages: [string, string][] = [
      ['overview', ''],
      ...endpoints.map((e): [string, string] => [`explore-${e.split('?')[0]}`, `#/explore/${e}`]),
      ['dead-letters', '#/dead-letters'],
      ['keys', '#/keys'],
    ];
    for (const [look, colorScheme, width] of [
      ['light', 'light', 1280],
      ['dark', 'dark', 1280],
      ['phone', 'light', 390],
    ] as const) {
      const { page, close } = await visit(browser, address, { key, colorScheme, viewport: { width, height: 860 } });
      for (const [name, hash] of pages) {
        await page.goto(`${address}/${hash}`);
        await page.reload();
        await page.getByRole('heading', { level: 1 }).waitFor();
        await sleep(DRAWN_MS);
        await page.screenshot({ path: `${ROOT}screenshots/${name}-${look}.png`, fullPage: !name.includes('logs.all') });
        if (name === 'overview' && look === 'light') await page.screenshot({ path: README_PICTURE });
      }
      await page.goto(address);
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByLabel('API key').waitFor();
      await page.screenshot({ path: `${ROOT}screenshots/sign-in-${look}.png` });
      await close();
    }
  } finally {
    await browser.close();
  }
  process.stdout.write(`screenshots/ and ${README_PICTURE.slice(ROOT.length)} are made\n`);
}
