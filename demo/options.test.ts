import { expect, test } from 'vitest';
import { StartError } from '../common/errors.ts';
import { help, readOptions } from './options.ts';
import { createTraffic, naturalShares } from './traffic.ts';

function mistakesOf(...args: string[]): StartError {
  try {
    readOptions(args, 5);
  } catch (error) {
    if (error instanceof StartError) return error;
    throw error;
  }
  throw new Error('there was no mistake');
}

test('without flags: 100 events a second of all sources, until stopped', () => {
  const options = readOptions([], 5);
  expect(options).toMatchObject({
    rate: 100,
    durationSeconds: undefined,
    curve: false,
    json: false,
    help: false,
    traffic: { seed: 1, run: 5, shares: naturalShares, incidents: false },
  });
});

test('a given seed gives the same events in every run', () => {
  const first = createTraffic(readOptions(['--seed', '9'], 5).traffic);
  const second = createTraffic(readOptions(['--seed', '9'], 6).traffic);
  for (let i = 0; i < 200; i++)
    expect(second.next(1_772_355_600_000_000 + i)).toEqual(first.next(1_772_355_600_000_000 + i));
});

test('sources are named by name or alias, and keep their proportions', () => {
  const { shares } = readOptions(['--sources', 'edge_logs, gotrue.logs.prod'], 5).traffic;
  expect(shares).toEqual({ edge_logs: naturalShares.edge_logs, auth_logs: naturalShares.auth_logs });
});

test('all mistakes are reported at once, with the exit code for wrong arguments', () => {
  const error = mistakesOf('--rate', '0', '--sources', 'nope', '--duration', 'x', '--curve');
  expect(error.exitCode).toBe(64);
  for (const part of ['3 flags are wrong', '--rate is "0"', '--sources has "nope"', '--duration is "x"'])
    expect(error.message).toContain(part);
});

test('an unknown flag is answered with the help', () => {
  expect(mistakesOf('--what').exitCode).toBe(64);
  expect(mistakesOf('--what').message).toBe(`Unknown option '--what'\n\n${help}`);
  expect(mistakesOf('what').message).toBe(`Unexpected argument 'what'\n\n${help}`);
});

test('-h asks for the help', () => {
  expect(readOptions(['-h'], 5).help).toBe(true);
});

test('the help names every flag', () => {
  for (const flag of [
    'rate',
    'projects',
    'functions',
    'sources',
    'seed',
    'duration',
    'curve',
    'incidents',
    'json',
    'help',
  ])
    expect(help).toContain(`--${flag}`);
});
