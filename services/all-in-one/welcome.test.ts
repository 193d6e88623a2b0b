import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readSettings } from '../../common/config/settings.ts';
import { keyFile } from '../../common/config/data-folder.ts';
import { welcome } from './welcome.ts';

const folder = mkdtempSync(join(tmpdir(), "sluice's data "));
afterAll(() => rmSync(folder, { recursive: true }));
writeFileSync(keyFile(folder), 'kept-key\n', { mode: 0o600 });

const of = (createdKey: string | undefined, file: string | undefined, areBrokersOurs = true): string =>
  welcome({
    address: 'http://127.0.0.1:4000',
    createdKey,
    keyFile: file,
    brokers: ['127.0.0.1:9092'],
    areBrokersOurs,
    topics: readSettings({}).KAFKA_TOPICS,
  });

/** What a shell makes of the pasted calls: the words after `curl -H`. */
function pasted(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('curl '))
    .map((line) =>
      execFileSync('sh', ['-c', line.replace(/^curl -H/, "printf '%s\\n'")], {
        encoding: 'utf8',
        env: { ...process.env, API_KEY: "set by $the 'operator'" },
      })
        .trimEnd()
        .split('\n'),
    );
}

test.each([
  ['the key that was made just now', 'sluice_made', keyFile(folder), 'sluice_made'],
  ['the key of an earlier start', undefined, keyFile(folder), 'kept-key'],
  ['API_KEY', undefined, undefined, "set by $the 'operator'"],
])('the calls can be pasted: with %s', (_, createdKey, file, key) => {
  const calls = pasted(of(createdKey, file));
  expect(calls.map(([header]) => header)).toEqual([`X-API-KEY: ${key}`, `X-API-KEY: ${key}`, `X-API-KEY: ${key}`]);
  expect(calls.map(([, url]) => new URL(url!).pathname)).toEqual([
    '/api/endpoints/logs.all',
    '/api/endpoints/functions.invocation-stats',
    '/api/endpoints/usage.api-counts',
  ]);
});

test('says where the key is, and shows it only where it was made just now', () => {
  expect(of('sluice_made', keyFile(folder))).toContain('key: sluice_made (created now, shown only this once,');
  expect(of(undefined, keyFile(folder))).toContain(`key: the one in ${keyFile(folder)}`);
  expect(of(undefined, undefined)).toContain('key: the one in API_KEY');
});

test('invites to the demo before the calls, and only on the broker that the start brought with it', () => {
  expect(of('sluice_made', undefined)).toMatch(/npm run demo[^]*curl/);
  const own = of('sluice_made', undefined, false);
  expect(own).not.toContain('npm run demo');
  expect(pasted(own).map(([, url]) => new URL(url!).searchParams.get('project'))).toEqual(
    Array.from({ length: 3 }, () => 'YOUR_PROJECT'),
  );
});
