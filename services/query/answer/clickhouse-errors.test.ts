import { describe, expect, it } from 'vitest';
import { ClickHouseError, fromEngine, fromSystem, knownErrors } from '../../../common/clickhouse/errors.ts';
import { StartError } from '../../../common/errors.ts';
import { ApiError, type ErrorCode } from '../../../common/http/errors.ts';
import { apiErrorOf } from './clickhouse-errors.ts';
import type { Parameter } from '../definition/definition.ts';

const parameter = (name: string, format: Parameter['format']): Parameter => ({
  name,
  description: '',
  required: true,
  format,
  maxLength: 10,
  aliases: {},
  examples: [],
});
const definition = { parameters: [parameter('project', 'pattern'), parameter('interval', 'string')] };
const SECRET = "SELECT hash FROM api_keys WHERE project = 'secret'";
const engineSays = (code: number, text = SECRET): ClickHouseError => {
  const error = fromEngine(`Code: ${code}. DB::Exception: ${text}. (SOME_NAME) (version 26.7.1)`, false);
  if (error === undefined) throw new Error('no report of the engine');
  return error;
};

/**
 * What has a meaning of its own for a caller; every other number is 503 where the same query may succeed later, else
 * 500.
 */
const told: Readonly<Record<number, ErrorCode>> = {
  158: 'timeout',
  159: 'timeout',
  160: 'timeout',
  191: 'timeout',
  241: 'timeout',
  307: 'timeout',
  396: 'timeout',
  427: 'invalid_parameter',
  60: 'unavailable',
  81: 'unavailable',
  192: 'unavailable',
  193: 'unavailable',
  194: 'unavailable',
  497: 'unavailable',
  516: 'unavailable',
};

describe('what a caller is told of a failed query', () => {
  it.each([
    ...knownErrors.map((e): [number, ErrorCode] => [
      e.code,
      told[e.code] ?? (e.kind === 'retry' ? 'unavailable' : 'internal'),
    ]),
    [1, 'internal'],
    [987_654, 'internal'],
  ] as [number, ErrorCode][])('%i is %s, without a word of the engine', (code, expected) => {
    const cause = engineSays(code);
    const error = apiErrorOf(cause, definition);
    expect([error.code, error.cause]).toEqual([expected, cause]);
    expect(error.retryAfterSeconds).toBe(expected === 'unavailable' ? 5 : undefined);
    expect(JSON.stringify([error.message, error.mistakes])).not.toMatch(/secret|SELECT|Code|DB::|SOME_NAME|api_keys/);
  });

  it.each([
    [158, 'rows read'],
    [307, 'rows read'],
    [159, 'time'],
    [160, 'time'],
    [191, 'memory'],
    [241, 'memory'],
    [396, 'size of the answer'],
  ])('%i names its limit: %s', (code, limit) => {
    expect(apiErrorOf(engineSays(code), definition).message).toBe(`the query exceeded its limit of ${limit}`);
  });

  it('every number with a meaning of its own is a known one', () => {
    expect(
      Object.keys(told)
        .map(Number)
        .filter((code) => !knownErrors.some((e) => e.code === code)),
    ).toEqual([]);
  });

  it.each([
    ['Memory limit (total) exceeded: would use 10.00 GiB', 'unavailable'],
    ['(total) memory limit exceeded: would use 10.00 GiB', 'unavailable'],
    ['User memory limit exceeded: would use 1.00 GiB', 'unavailable'],
    ['Query memory limit exceeded: would use 1.00 GiB', 'timeout'],
    ['Memory limit (for query) exceeded: would use 1.00 GiB', 'timeout'],
    [
      'Query memory limit exceeded: would use 1.00 GiB: (while reading from part /srv/clickhouse-server/data/a/: user)',
      'timeout',
    ],
    ...['clickhouse-server-2', 'ch-0.clickhouse-server.logs.svc', 'user-logs-1'].flatMap((host) => [
      [
        `Received from ${host}:9000, 10.0.0.7. DB::Exception: Query memory limit exceeded: would use 1.00 GiB`,
        'timeout',
      ],
      [`Received from ${host}:9000. DB::Exception: User memory limit exceeded: would use 1.00 GiB`, 'unavailable'],
    ]),
  ])('memory of all queries may be free later, that of one is its limit: %s', (said, code) => {
    expect(apiErrorOf(engineSays(241, said), definition).code).toBe(code);
  });

  it('a pattern is named by its parameter; one of the statement itself is no mistake of the caller', () => {
    expect(apiErrorOf(engineSays(427), definition).mistakes).toEqual([
      { parameter: 'project', message: 'is not a pattern in RE2 syntax' },
    ]);
    expect(apiErrorOf(engineSays(427), { parameters: [parameter('project', 'string')] }).code).toBe('internal');
  });

  it.each(['CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID', 'EPROTO', 'HPE_INVALID_CONSTANT', 'EHOSTDOWN'])(
    '%s, which no repetition mends, is ClickHouse away too',
    (code) => {
      const error = apiErrorOf(fromSystem(Object.assign(new Error(SECRET), { code }), false, true), definition);
      expect(error).toMatchObject({ code: 'unavailable', retryAfterSeconds: 5 });
      expect(error.message).not.toContain('secret');
    },
  );

  it("a proxy's own answer, and shards that were added, are ClickHouse away", () => {
    const proxy = new ClickHouseError('404', {
      code: undefined,
      codeName: 'HTTP_404',
      kind: 'fatal',
      outcome: 'not_written',
    });
    for (const error of [proxy, new StartError('the cluster has 3 shards now')])
      expect(apiErrorOf(error, definition)).toMatchObject({ code: 'unavailable', retryAfterSeconds: 5 });
    for (const code of [undefined, 'ERR_INVALID_ARG_TYPE']) {
      const ours = Object.assign(new TypeError(SECRET), { code });
      expect(apiErrorOf(fromSystem(ours, false, true), definition).code).toBe('internal');
    }
  });

  it('sockets, bugs and what has been said already', () => {
    expect(
      apiErrorOf(fromSystem(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), false, false), definition)
        .code,
    ).toBe('unavailable');
    expect(apiErrorOf(new TypeError(SECRET), definition)).toMatchObject({
      code: 'internal',
      message: 'something went wrong on our side',
    });
    const said = new ApiError('timeout', 'said');
    expect(apiErrorOf(said, definition)).toBe(said);
  });
});
