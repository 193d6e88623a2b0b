import { describe, expect, it } from 'vitest';
import { LARGEST_PATTERN, matches, patternSize, refusedPattern } from './pattern.ts';

describe('the size of a pattern', () => {
  it.each([
    ['a literal reference', 'abcdefghijklmnopqrst'],
    ['a host', 'https://abcdefghijklmnopqrst\\.supabase\\.co/'],
    ['a class repeated', '^https://[a-z]{20}\\.'],
    ['an alternative', '(?:rest|storage|auth)/v1'],
    ['escaped brackets', '\\{1000\\}'],
    ['a character by its number', '\\x{1234}'],
    ['braces in a class', '[a{1000}]'],
    ['braces beside a named class', '[[:alpha:]{1000}]'],
    ['quoted braces', '\\Qa{1000}\\E'],
    ['anything', '.*'],
    ['one Unicode class', '\\p{Greek}+'],
    ['references', Array.from({ length: 48 }, (_, i) => `${i % 10}`.repeat(20)).join('|')],
    ['hosts', Array.from({ length: 24 }, (_, i) => `${i % 10}`.repeat(20) + '\\.supabase\\.co').join('|')],
  ])('of %s is small', (_, pattern) => {
    expect(patternSize(pattern)).toBeLessThanOrEqual(LARGEST_PATTERN);
  });

  it.each([
    ['a repetition', 'a{201}'],
    ['texts with any character between', `${'a'.repeat(100)}.${'b'.repeat(100)}`],
    ['repetitions side by side', '.{1000}.{500}!'],
    ['nested repetitions', '(?:(?:a{8}){8}){8}'],
    ['an alternative repeated', '(?:a|bb|ccc){100}'],
    ['an open repetition', 'a{500,}'],
    ['a repetition behind an escape', '\\\\{1000}'],
    ['an optional repetition', '(?:a{0,30}){0,30}'],
    ['a repetition of a character by its number', '\\x{41}{201}'],
    ['a repetition of quoted text', '\\Qab\\E{201}'],
    ['a repetition of a class', '[ab]{201}'],
    ['a repetition between classes', '[^]a].{1000}[b]'],
    ['a repetition behind the quoted text', '\\Qa\\E.{1000}\\Qb\\E'],
    ['a repeated wide class', `[${'acegikmoqsuwy'.repeat(3)}]{80}`],
    ['a repeated Unicode class', '\\pL{100}'],
    ['a long text with a repetition', `${'a'.repeat(30)}(?:${'b'.repeat(60)}){3}`],
  ])('counts %s', (_, pattern) => {
    expect(patternSize(pattern)).toBeGreaterThan(LARGEST_PATTERN);
  });

  it.each([
    ['a{199}', 199],
    ['a{200}', 200],
    ['.{200}', 200],
    ['(a){50}', 150],
    ['(?:ab?){50}', 150],
    ['(?:ab|cd){40}', 200],
  ])('of %s is %d', (pattern, size) => {
    expect(patternSize(pattern)).toBe(size);
  });

  it.each(['(', 'a**', '(?=a)', '(a)\\1', 'a{1001}x{1', '[', '\\C'])('of %j is none', (pattern) => {
    expect(patternSize(pattern) ?? Infinity).toBeGreaterThan(LARGEST_PATTERN);
  });

  it('is told within 50 ms of the largest patterns that callers may send', () => {
    patternSize('warm{3}');
    for (const part of [
      '.{1000}',
      '\\pL{99}',
      '(?:(?:a{9}){9}){9}',
      '[^a]{30}',
      '(|',
      '(?:a?){2}',
      '\\E{999}',
      '[\\Q].{999}[\\E]',
      '[[:a].{999}[:]]',
      '\\Q\\\\E.{999}',
      '(?i)é{9}',
      `(?:(?:${'x+'.repeat(480)}){31}){32}`,
      `(?:(?:${'x'.repeat(480)}|){2}){100}`,
      `${'(?:'.repeat(200)}x${'){2}'.repeat(60)}${')'.repeat(140)}`,
      `(?:\\Q${'x'.repeat(1000)}\\E){900}`,
      `${'('.repeat(500)}x${')'.repeat(500)}{900}`,
      `(?:${'x'.repeat(1000)})(?i){900}`,
      `(?:${'x'.repeat(1000)})\\Q\\E{900}`,
      `(?:${'x?'.repeat(10)}){0,60}`.repeat(4),
      `[(?i)](?:${'x'.repeat(900)}){900}[]]`,
      `[\\Q\\E](?:${'x'.repeat(900)}){900}[]]`,
      `(?:${'x'.repeat(900)})(?i)(?s){900}`,
    ]) {
      const pattern = part.repeat(Math.floor(1024 / part.length));
      const from = process.cpuUsage();
      patternSize(pattern);
      const { user, system } = process.cpuUsage(from);
      expect([part, (user + system) / 1000 < 50]).toEqual([part, true]);
    }
  });
});

describe('a pattern of a definition', () => {
  it('is found anywhere in the text', () => {
    expect([matches('b+c', 'abbcd'), matches('b+c', 'abb')]).toEqual([true, false]);
  });

  it('takes linear time where a backtracking engine takes exponential', () => {
    const milliseconds = (length: number): number => {
      const from = process.cpuUsage();
      expect(matches('^(a+)+$', `${'a'.repeat(length)}!`)).toBe(false);
      const { user, system } = process.cpuUsage(from);
      return (user + system) / 1000;
    };
    milliseconds(8192);
    expect(milliseconds(8192)).toBeLessThan(500);
  });

  it.each([
    ['(?=a)', /RE2 syntax/],
    ['a{300}', /too large a pattern: .* 300 parts/],
  ])('%s is refused', (pattern, message) => {
    expect(refusedPattern(pattern)).toMatch(message);
  });
});
