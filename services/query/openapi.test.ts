import { fileURLToPath } from 'node:url';
import { Validator } from '@seriousme/openapi-schema-validator';
import { describe, expect, it } from 'vitest';
import { docsPage } from './docs.ts';
import { BUILT_IN, readDefinitions } from './definition.ts';
import { openapi } from './openapi.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples/endpoints', import.meta.url));
const { all } = readDefinitions([BUILT_IN, EXAMPLES]);

describe('openapi', () => {
  it('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    expect(await validator.validate(JSON.parse(JSON.stringify(openapi(all))) as Record<string, unknown>)).toEqual({ valid: true });
    expect(validator.version).toBe('3.1');
  });

  it('has every endpoint, also those of an operator, with its parameters and columns', () => {
    const { paths } = openapi(all) as { paths: Record<string, { get: { parameters: { name: string; required: boolean }[]; responses: Record<string, unknown> } }> };
    expect(Object.keys(paths)).toEqual(all.map((d) => `/api/endpoints/${d.name}`));
    const added = paths['/api/endpoints/functions.errors-by-class']?.get;
    expect(added?.parameters.map((p) => [p.name, p.required])).toEqual([['project', true], ['function_id', true], ['hours', false]]);
    expect(JSON.stringify(added?.responses)).toContain('client_errors');
    expect(JSON.stringify(openapi(all))).not.toMatch(/SELECT|\.sql|function_invocations_1m/);
  });
});

it('the page escapes what definitions say', () => {
  const [first] = all;
  if (first === undefined) throw new Error('no definitions');
  const page = docsPage([{ ...first, description: '<script>alert("x")</script> & more' }]);
  expect(page).toContain('&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; more');
  expect(page).not.toContain('<script');
});
