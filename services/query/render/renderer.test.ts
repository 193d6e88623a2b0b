import { expect, test } from 'vitest';
import type { Column } from '../definition/definition.ts';
import { render } from './renderer.ts';

const column: Column = { name: 'a', from: 'a', description: '', nullable: true, render: 'json' };
/** A result that is rendered in the thread. */
const large = (): Buffer =>
  Buffer.from(`{"meta":[{"name":"a","type":"String"}],\n"data":\n${JSON.stringify([['x'.repeat(1024 * 1024)]])}}\n`);

test('a large result that cannot be rendered rejects, and the results behind it are rendered', async () => {
  const wrong = render({ columns: [{ ...column, from: 'b' }], maxRows: 1 }, large(), undefined);
  const behind = [1, 2].map(() => render({ columns: [column], maxRows: 1 }, large(), undefined));
  await expect(wrong).rejects.toThrow('the statement has no column b');
  for (const { body, truncated } of await Promise.all(behind))
    expect([body.length, truncated]).toEqual([`{"result":[{"a":""}]}`.length + 1024 * 1024, false]);
});
