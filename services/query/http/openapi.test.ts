import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { ApiError, envelope } from '../../../common/http/errors.ts';
import { docsPage } from './docs.ts';
import { SANDBOX_SQL } from '../definition/parse-definition.ts';
import { BUILT_IN, readDefinitions } from '../definition/definition-files.ts';
import { openapi } from './openapi.ts';

const EXAMPLES = fileURLToPath(new URL('../../../examples/endpoints', import.meta.url));
const { all } = readDefinitions([BUILT_IN, EXAMPLES]);
const AT = { address: 'https://sluice.example.com' };

describe('openapi', () => {
  it('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    expect(await validator.validate(JSON.parse(JSON.stringify(openapi(all))) as Record<string, unknown>)).toEqual({
      valid: true,
    });
    expect(validator.version).toBe('3.1');
  });

  it('has every endpoint, also those of an operator, with its parameters and columns', () => {
    const { paths } = openapi(all) as {
      paths: Record<
        string,
        { get: { parameters: { name: string; required: boolean }[]; responses: Record<string, unknown> } }
      >;
    };
    expect(Object.keys(paths)).toEqual(all.map((d) => `/api/endpoints/${d.name}`));
    const added = paths['/api/endpoints/functions.errors-by-class']?.get;
    expect(added?.parameters.map((p) => [p.name, p.required])).toEqual([
      ['project', true],
      ['function_id', true],
      ['hours', false],
    ]);
    expect(JSON.stringify(added?.responses)).toContain('client_errors');
    expect(JSON.stringify(openapi(all))).not.toMatch(/SELECT|\.sql|function_invocations_1m/);
  });

  it('says how many rows a caller can get, and the range of an integer', () => {
    type Endpoint = {
      description: string;
      parameters: { name: string; description: string }[];
      responses: {
        200: { content: { 'application/json': { schema: { properties: { result: { maxItems: number } } } } } };
      };
    };
    const endpointOf = (definitions: typeof all): Endpoint =>
      (openapi(definitions) as { paths: Record<string, { get: Endpoint }> }).paths['/api/endpoints/logs.all']!.get;
    const rowsOf = ({ description, responses }: Endpoint): unknown[] => [
      /At most \d+ rows/.exec(description)?.[0],
      responses[200].content['application/json'].schema.properties.result.maxItems,
    ];
    expect(rowsOf(endpointOf(all))).toEqual(['At most 100 rows', 100]);
    expect(endpointOf(all).parameters.find((p) => p.name === 'limit')?.description).toMatch(/; from 1 to 100$/);
    expect(docsPage(all, AT)).toContain('from 1 to 100');
    // a statement of the caller's own may ignore the parameter
    const sandboxed = all.map((d) => ({ ...d, sandboxed: true, parameters: [...d.parameters, SANDBOX_SQL] }));
    expect(rowsOf(endpointOf(sandboxed))).toEqual(['At most 1000 rows', 1000]);
  });

  it('describes errors as they are: of wrong parameters, of events that are not taken, of neither', () => {
    const { components } = openapi(all) as { components: { schemas: { Error: object } } };
    const isError = new Ajv2020({ strictSchema: false }).compile(components.schemas.Error);
    for (const mistakes of [
      [{ parameter: 'project', message: 'is required' }],
      [{ index: 3, message: 'is not JSON' }],
      [],
    ]) {
      expect(
        isError(JSON.parse(envelope(new ApiError('invalid_request', 'a sentence', { mistakes }), 'id'))),
        JSON.stringify(isError.errors),
      ).toBe(true);
    }
    expect(isError({ error: { code: 'x' } })).toBe(false);
  });

  it('has the statement that a caller may send to a sandboxed endpoint, and so has the page', () => {
    const sandboxed = all.map((d) => ({ ...d, sandboxed: true, parameters: [...d.parameters, SANDBOX_SQL] }));
    const { paths } = openapi(sandboxed) as {
      paths: Record<string, { get: { parameters: { name: string; required: boolean }[] } }>;
    };
    for (const { get } of Object.values(paths))
      expect(get.parameters.at(-1)).toMatchObject({ name: 'sql', required: false });
    expect(docsPage(sandboxed, AT).match(/<code>sql<\/code>/g)).toHaveLength(all.length);
    expect(docsPage(all, AT)).not.toContain('<code>sql</code>');
  });
});

it('the page escapes what definitions say', () => {
  const [first] = all;
  if (first === undefined) throw new Error('no definitions');
  const page = docsPage([{ ...first, description: '<script>alert("x")</script> & more, `<code>`' }], AT);
  expect(page).toContain('&#60;script&#62;alert(&#34;x&#34;)&#60;/script&#62; &#38; more, <code>&#60;code&#62;</code>');
  expect(page).not.toContain('<script');
});

it('the calls of the page can be pasted, and the rows are those that a caller can get', () => {
  const page = docsPage(all, AT);
  const text = page.replaceAll('&#34;', '"').replaceAll('&#38;', '&');
  const [, given, call] = /<pre>(SLUICE=\S+ KEY=\S+)<\/pre>[^]*<pre>curl (.*logs\.all.*)<\/pre>/.exec(text)!;
  const words = execFileSync('sh', ['-c', `${given!.replace(' ', '; ')}; printf '%s\\n' ${call!}`], {
    encoding: 'utf8',
  });
  const [, header, url] = words.split('\n');
  const { origin, pathname } = new URL(url!);
  expect([header, origin, pathname]).toEqual([
    'X-API-KEY: ...',
    'https://sluice.example.com',
    '/api/endpoints/logs.all',
  ]);
  expect(page).toContain('At most 100 rows');
  expect(page).not.toContain('`');
});

it.each([
  ...['http://localhost:4000', 'http://127.0.0.1:4000', 'http://[::1]:4000', 'https://a.example:4443'].map((a) => [
    a,
    a,
  ]),
  // a proxy may have ended its TLS
  ['http://a.example', 'https://...'],
  ...['x;reboot', '$(reboot)', 'x y', '<b>', "x'", 'u@x', '', 'x\ny'].map((host) => [`https://${host}`, 'https://...']),
])('the page shows the address of its reader, but none that a shell or a browser would obey: %j', (address, shown) => {
  expect(/<pre>SLUICE=([^<]*) KEY=/.exec(docsPage(all, { address }))?.[1]).toBe(shown);
});
