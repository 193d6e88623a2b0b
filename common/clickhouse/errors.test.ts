import { describe, expect, test } from 'vitest';
import { ClickHouseError, fromEngine, fromSystem, knownErrors, refusal } from './errors.ts';

const system = (code: string): Error => Object.assign(new Error(`it failed with ${code}`), { code });

describe('errors of the engine', () => {
  test.each([
    [
      'Code: 252. DB::Exception: Too many parts (301). (TOO_MANY_PARTS) (version 26.7.2.1 (official build))',
      252,
      'TOO_MANY_PARTS',
      'retry',
      'unknown',
    ],
    [
      'Code: 395. DB::Exception: Value passed to throwIf. (FUNCTION_THROW_IF_VALUE_IS_NON_ZERO)',
      395,
      'FUNCTION_THROW_IF_VALUE_IS_NON_ZERO',
      'fatal',
      'unknown',
    ],
    [
      'Code: 62. DB::Exception: Syntax error: failed at position 1. (SYNTAX_ERROR) (version 25.8.1.1)\n',
      62,
      'SYNTAX_ERROR',
      'fatal',
      'not_written',
    ],
    ['Code: 49. DB::Exception: Bad cast. (LOGICAL_ERROR) (version 25.8.1.1)', 49, 'LOGICAL_ERROR', 'fatal', 'unknown'],
    [
      'Code: 164. DB::Exception: Code: 164. DB::Exception: Cannot modify setting. (READONLY) (version 26.7.2.1). (READONLY)',
      164,
      'READONLY',
      'fatal',
      'not_written',
    ],
    [
      'Code: 60. DB::Exception: Table sluice.edge_log does not exist. Maybe you meant sluice.edge_logs? (UNKNOWN_TABLE)',
      60,
      'UNKNOWN_TABLE',
      'fatal',
      'not_written',
    ],
    [
      "Code: 60. DB::Exception: Unknown table expression identifier 'sluice.t_1m_v1' in scope SELECT n FROM sluice.t_1m_v1: while pushing to view sluice.t_1h_v1_mv: while pushing to view sluice.t_1m_v1_mv. (UNKNOWN_TABLE)",
      60,
      'UNKNOWN_TABLE',
      'retry',
      'unknown',
    ],
    [
      "Code: 47. DB::Exception: Unknown expression identifier 'm' in scope SELECT m FROM sluice.t: while pushing to view sluice.t_1m_v1_mv. (UNKNOWN_IDENTIFIER)",
      47,
      'UNKNOWN_IDENTIFIER',
      'fatal',
      'unknown',
    ],
    [
      'Code: 999. Coordination::Exception: Connection loss. (KEEPER_EXCEPTION)',
      999,
      'KEEPER_EXCEPTION',
      'retry',
      'unknown',
    ],
    ['Poco::Exception. Code: 1000, e.code() = 111, Connection refused', 1000, 'POCO_EXCEPTION', 'retry', 'unknown'],
  ] as const)('%s', (text, code, codeName, kind, outcome) => {
    const number = text.startsWith('Poco') ? 1000 : undefined;
    expect(fromEngine(text, true, number)).toMatchObject({ code, codeName, kind, outcome });
  });

  test('an unknown number is fatal and keeps its name', () => {
    expect(fromEngine('Code: 7777. DB::Exception: new. (SOMETHING_NEW) (version 30.1)', true)).toMatchObject({
      code: 7777,
      codeName: 'SOMETHING_NEW',
      kind: 'fatal',
      outcome: 'unknown',
    });
  });

  test('a failed read has stored nothing', () => {
    expect(fromEngine('Code: 241. DB::Exception: memory. (MEMORY_LIMIT_EXCEEDED)', false)).toMatchObject({
      kind: 'retry',
      outcome: 'not_written',
    });
  });

  test('other text is no report of the engine, even where it quotes one', () => {
    expect(fromEngine('<html>502 Bad Gateway</html>', true)).toBeUndefined();
    expect(fromEngine('getaddrinfo ENOTFOUND Code', true)).toBeUndefined();
  });

  test('no number stands in the table twice, and refusals take their kind from it', () => {
    expect(new Set(knownErrors.map((e) => e.code)).size).toBe(knownErrors.length);
    expect(refusal(202, 'full')).toMatchObject({
      codeName: 'TOO_MANY_SIMULTANEOUS_QUERIES',
      kind: 'retry',
      outcome: 'not_written',
    });
  });
});

describe('errors of the system', () => {
  test.each([
    ['ECONNREFUSED', 'retry', 'not_written'],
    ['ENOTFOUND', 'retry', 'not_written'],
    ['ECONNRESET', 'retry', 'unknown'],
    ['EPIPE', 'retry', 'unknown'],
    ['ETIMEDOUT', 'retry', 'unknown'],
    ['CERT_HAS_EXPIRED', 'fatal', 'unknown'],
    ['HPE_INVALID_CONSTANT', 'fatal', 'unknown'],
  ] as const)('%s of a write', (code, kind, outcome) => {
    expect(fromSystem(system(code), true, true)).toMatchObject({ code: undefined, codeName: code, kind, outcome });
  });

  test('nothing sent, nothing stored; a read stores nothing', () => {
    expect(fromSystem(system('ENOSPC'), true, false)).toMatchObject({ kind: 'retry', outcome: 'not_written' });
    expect(fromSystem(system('ECONNRESET'), false, true)).toMatchObject({ kind: 'retry', outcome: 'not_written' });
  });

  test('the code is found behind causes and among several attempts to connect', () => {
    const both = new AggregateError([system('ECONNREFUSED'), system('ECONNREFUSED')]);
    expect(fromSystem(new Error('fetch failed', { cause: both }), true, true)).toMatchObject({
      codeName: 'ECONNREFUSED',
      outcome: 'not_written',
    });
  });

  test('the timeout of the HTTP client has no code of its own', () => {
    expect(fromSystem(new Error('Timeout error.'), true, true)).toMatchObject({
      codeName: 'ETIMEDOUT',
      kind: 'retry',
      outcome: 'unknown',
    });
  });

  test('a bug of ours is fatal; an error of the engine stays what it is', () => {
    expect(fromSystem(new TypeError('x is not a function'), true, true)).toMatchObject({ kind: 'fatal' });
    const error = new ClickHouseError('x', {
      code: 252,
      codeName: 'TOO_MANY_PARTS',
      kind: 'retry',
      outcome: 'unknown',
    });
    expect(fromSystem(error, true, true)).toBe(error);
  });
});
