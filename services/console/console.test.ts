import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { refusal } from '../../common/clickhouse/errors.ts';
import { keyFile } from '../../common/config/data-folder.ts';
import type { OpenRoute } from '../../common/http/route.ts';
import { createLogger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { buildAssets } from './assets.ts';
import { startConsole, type Console } from './console.ts';

const folder = mkdtempSync(join(tmpdir(), 'console-'));
afterAll(() => rmSync(folder, { recursive: true }));
writeFileSync(keyFile(folder), 'the-first-key\n');

const started: Console[] = [];
afterAll(async () => {
  await Promise.all(started.map((c) => c.stop()));
});
function console_(settings: { API_KEY?: string; HOST?: string }, clock: () => number = Date.now): Console {
  const made = startConsole({
    clickhouse: { read: () => Promise.reject(refusal(210, 'not there')) },
    registry: createRegistry(),
    logger: createLogger('silent'),
    clock,
    settings: { API_KEY: settings.API_KEY, HOST: settings.HOST ?? '127.0.0.1', DATA_DIR: folder },
  });
  started.push(made);
  return made;
}
const post = async (of: Console, body: string): Promise<unknown> => {
  const route = of.routes.find((r) => r.path === '/console/sign-in') as OpenRoute;
  return (
    await route.handle({
      params: {},
      query: new URLSearchParams(),
      headers: {},
      body: Buffer.from(body),
      address: '127.0.0.1',
      arrivedAt: '127.0.0.1:4000',
      signal: new AbortController().signal,
    })
  ).json;
};
const exchange = (of: Console, token: string | undefined): Promise<unknown> => post(of, JSON.stringify({ token }));

describe('the one-time token', () => {
  test('gives the key that the service made itself, once', async () => {
    const of = console_({});
    await expect(exchange(of, 'A'.repeat(43))).rejects.toMatchObject({ code: 'unauthorized' });
    const token = of.issueSignInToken();
    expect(await exchange(of, token)).toEqual({ result: { key: 'the-first-key' } });
    await expect(exchange(of, token)).rejects.toMatchObject({ code: 'unauthorized' });
  });

  test('ends ten minutes after it was printed, however long the start took', async () => {
    let now = 1_000_000;
    const [used, unused] = [console_({}, () => now), console_({}, () => now)];
    now += 900_000;
    const tokens = [used.issueSignInToken(), unused.issueSignInToken()];
    now += 600_000;
    expect(await exchange(used, tokens[0])).toEqual({ result: { key: 'the-first-key' } });
    now += 1;
    await expect(exchange(unused, tokens[1])).rejects.toMatchObject({ code: 'unauthorized' });
  });

  test.each([{ API_KEY: 'of-the-operator' }, { HOST: '0.0.0.0' }, { HOST: '10.1.2.3' }, { HOST: '::' }])(
    'is not made with %o',
    async (settings) => {
      const of = console_(settings);
      expect(of.issueSignInToken()).toBeUndefined();
      await expect(exchange(of, 'A'.repeat(43))).rejects.toMatchObject({ code: 'not_found' });
    },
  );

  test.each(['localhost', '::1', '127.0.0.53'])('is made on %s', (HOST) => {
    expect(console_({ HOST }).issueSignInToken()).toMatch(/^[\w-]{43}$/);
  });

  test.each(['', '{', '[]', '{"token":1}', 'null'])(
    'a body %j is refused as the mistake of who sent it',
    async (body) => {
      await expect(post(console_({}), body)).rejects.toMatchObject({ code: 'invalid_request' });
    },
  );
});

describe('the files of the page', () => {
  const assets = buildAssets();
  const all = [assets.index, ...assets.files.values()];

  test('are at most 200 kB, compressed', () => {
    for (const encoding of ['br', 'gzip'] as const)
      expect(all.reduce((sum, a) => sum + a[encoding].length, 0)).toBeLessThan(200_000);
  });

  test('load nothing from elsewhere, and hold no inline script or style', () => {
    const html = assets.index.plain.toString('utf8');
    expect(
      [...html.matchAll(/(?:src|href)="([^"]+)"/g)]
        .map(([, address]) => address)
        .filter((address) => !address!.startsWith(`/console/${assets.version}/`)),
    ).toEqual([]);
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=/);
    for (const [path, { type, plain }] of assets.files) {
      const text = plain.toString('utf8');
      if (type.startsWith('text/css'))
        expect({ path, found: /@import|url\(/.exec(text)?.[0] }).toEqual({ path, found: undefined });
      if (!type.startsWith('text/javascript')) continue;
      const imports = [...text.matchAll(/(?:\bfrom|\bimport)\s*"([^"\s]+)"|(?:\bfrom|\bimport)\s*'([^'\s]+)'/g)].map(
        ([, a, b]) => a ?? b ?? '',
      );
      for (const address of imports)
        expect({
          path,
          target: assets.files.has(
            new URL(address, `http://x/console/${assets.version}/${path}`).pathname.replace(
              `/console/${assets.version}/`,
              '',
            ),
          )
            ? 'served'
            : address,
        }).toEqual({ path, target: 'served' });
    }
  });

  test('never build markup from texts', () => {
    const sources = readdirSync(new URL('page', import.meta.url), { recursive: true, encoding: 'utf8' }).filter((f) =>
      f.endsWith('.ts'),
    );
    for (const f of sources)
      expect({ f, text: readFileSync(new URL(`page/${f}`, import.meta.url), 'utf8') }).not.toEqual({
        f,
        text: expect.stringMatching(
          /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function/,
        ) as string,
      });
  });
});
