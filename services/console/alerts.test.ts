import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import {
  evaluateAlerts,
  rules,
  SLOW_INSERT_SECONDS,
  SLOW_QUERY_SECONDS,
  STALLED_SECONDS,
  type Facts,
} from './alerts.ts';
import { createHistory, LONGEST_WINDOW_SECONDS } from './history.ts';
import { sectionOf } from './runbook.ts';
import { STEP_SECONDS } from './wire.ts';

interface PrometheusRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
}

const file = parse(readFileSync(new URL('../../deploy/prometheus/alerts.yml', import.meta.url), 'utf8')) as {
  groups: readonly { rules: readonly PrometheusRule[] }[];
};
const prometheus = file.groups.flatMap((g) => g.rules);
const secondsOf = (text: string): number =>
  Number(text.slice(0, -1)) * ({ s: 1, m: 60, h: 3600 }[text.slice(-1)] ?? Number.NaN);

/** A clause of an expression about partitions that have an alert of their own. */
const PAUSED_PARTITION = 'unless on (topic, partition) sluice_ingest_partition_paused == 1';

// A service that is down cannot say so; an open page does, when its calls fail. The console forgets with its process,
// and after an hour and a half.
const LEFT_TO_PROMETHEUS = ['SluiceDown', 'SluiceRestarts', 'SluiceRetentionRefused'];

describe('the rules are those of deploy/prometheus/alerts.yml', () => {
  test('by name; what a service cannot know of itself is left to Prometheus', () => {
    expect([...LEFT_TO_PROMETHEUS, ...rules.map((r) => r.alert)].toSorted()).toEqual(
      prometheus.map((r) => r.alert).toSorted(),
    );
  });

  test.each(rules)('$alert: by severity and by the time that it has to hold', ({ alert, severity, forSeconds }) => {
    const rule = prometheus.find((r) => r.alert === alert)!;
    expect({ severity, forSeconds }).toEqual({ severity: rule.labels.severity, forSeconds: secondsOf(rule.for) });
  });

  test.each(rules)('$alert: by its thresholds and the times that it looks back', ({ alert, threshold = 0 }) => {
    const { expr } = prometheus.find((r) => r.alert === alert)!;
    // what is compared: for quantiles the share beyond the quantile, and its bound
    const expected: Record<string, string[]> = {
      SluiceLag: [`(sluice_ingest_lag_records ${PAUSED_PARTITION}) > ${threshold}`],
      SluiceStalled: ['> 0', `[${STALLED_SECONDS / 60}m]`],
      SluiceStale: ['> 60', '[5m]'],
      SluiceInsertsSlow: [`histogram_quantile(${1 - threshold}`, `> ${SLOW_INSERT_SECONDS}`, '[10m]'],
      SluiceQueriesSlow: [`histogram_quantile(${1 - threshold}`, `> ${SLOW_QUERY_SECONDS}`, 'miss|none', '[10m]'],
      SluicePartitionPaused: ['== 1'],
      SluiceCacheCold: [`< ${1 - threshold}`, '> 1', '[30m]'],
      SluiceErrors: ['> 0.02', '[5m]', '5..'],
      SluiceCallersBlocked: ['> 0.02', '[5m]'],
      SluiceClickHouseUnreachable: ['sluice_ready{check="clickhouse"} == 0'],
      SluiceNotReady: ['== 0'],
      SluiceEventsLost: [`> ${threshold}`, `[${LONGEST_WINDOW_SECONDS / 60}m]`],
      SluiceNotConsuming: ['sluice_ready{check="consumer"}', '== 0', 'unless'],
      SluiceCommitsRefused: ['> 0.5', '[10m]'],
      SluicePushRefused: ['> 0.02', '[5m]', '429|5..'],
    };
    for (const part of expected[alert] ?? [`> ${threshold}`]) expect(expr).toContain(part);
  });

  test.each(rules)('$alert: by the alerts that silence it', ({ alert, unless = [] }) => {
    const { expr } = prometheus.find((r) => r.alert === alert)!;
    // within a sum it says what is summed
    const clauses = expr.replace(`${PAUSED_PARTITION})`, '').split(' unless on ').slice(1);
    const causes = clauses.map((clause) =>
      clause.includes('sluice_ingest_partition_paused == 1')
        ? 'SluicePartitionPaused'
        : /^\(\) ALERTS\{alertname="(\w+)", alertstate="firing"\}\s*$/.exec(clause)?.[1],
    );
    expect(unless).toEqual(causes);
  });

  test.each([...LEFT_TO_PROMETHEUS, ...rules.map((r) => r.alert)])('%s has its section in the runbook', (alert) => {
    expect(sectionOf(alert)?.length).toBeGreaterThan(50);
  });
});

describe('a rule', () => {
  const NOW = 10_000;
  const facts = (more: Partial<Facts> = {}): Facts => ({
    history: createHistory(),
    ingestHere: true,
    pushHere: true,
    rollupHere: true,
    ...more,
  });
  const stateOf = (alert: string, of: Facts, step = NOW): unknown => {
    const { state, subjects, runbook } = evaluateAlerts(of, step).find((a) => a.alert === alert)!;
    return { state, subjects: subjects.map((s) => `${s.name} ${s.state}`), runbook };
  };
  const ok = { state: 'ok', subjects: [], runbook: undefined };

  test('is pending while its condition has not held for long enough, then fires, with its section; and is fine once it is over', () => {
    const of = facts();
    const held = 600 / STEP_SECONDS;
    for (let step = NOW - held + 2; step <= NOW; step++) of.history.set('behind:edge_logs', step, 500_001);
    expect(stateOf('SluiceLag', of)).toEqual({
      state: 'pending',
      subjects: ['edge_logs pending'],
      runbook: sectionOf('SluiceLag'),
    });
    of.history.set('behind:edge_logs', NOW + 1, 500_001);
    expect(stateOf('SluiceLag', of, NOW + 1)).toEqual({
      state: 'firing',
      subjects: ['edge_logs firing'],
      runbook: sectionOf('SluiceLag'),
    });
    of.history.set('behind:edge_logs', NOW + 2, 500_000);
    expect(stateOf('SluiceLag', of, NOW + 2)).toEqual(ok);
  });

  test('that needs the metrics of a process elsewhere is not known', () => {
    expect(stateOf('SluiceLag', facts({ ingestHere: false }))).toMatchObject({ state: 'unknown' });
    expect(stateOf('SluicePushRefused', facts({ pushHere: false }))).toMatchObject({ state: 'unknown' });
    expect(stateOf('SluiceAuditBehind', facts({ rollupHere: false }))).toMatchObject({ state: 'unknown' });
  });

  test('that looks back for half an hour at the requests of each step fires after an hour at any rate', () => {
    const of = facts();
    for (let step = NOW - 7200 / STEP_SECONDS; step <= NOW; step++) {
      of.history.set('cacheable:usage.api-counts', step, 2 * STEP_SECONDS);
      of.history.set('hits:usage.api-counts', step, 0);
    }
    expect(stateOf('SluiceCacheCold', of)).toMatchObject({ state: 'firing', subjects: ['usage.api-counts firing'] });
  });

  test('of a pause fires at once, and no longer when the partition goes on', () => {
    const of = facts();
    of.history.set('paused:edge_logs partition 3', NOW, 1);
    expect(stateOf('SluicePartitionPaused', of)).toMatchObject({
      state: 'firing',
      subjects: ['edge_logs partition 3 firing'],
    });
    of.history.set('paused:edge_logs partition 3', NOW + 1, 0);
    expect(stateOf('SluicePartitionPaused', of, NOW + 1)).toEqual(ok);
  });

  describe('while an alert about its cause fires', () => {
    /** A busy process in which all that needs ClickHouse fails; `isAway` says when the check of ClickHouse does. */
    const failing = (isAway: (step: number) => boolean, until = NOW): Facts => {
      const of = facts();
      for (let step = NOW - 200; step <= until; step++) {
        of.history.set('unreachable:ClickHouse', step, Number(isAway(step)));
        of.history.set('apart:ingest', step, Number(step <= NOW));
        of.history.set('stalled:edge_logs 3', step, Number(step <= NOW));
        of.history.set('behind:edge_logs', step, step <= NOW ? 600_000 : 0);
        of.history.set('unaudited:api_requests', step, step <= NOW ? 20_000 : 100);
        of.history.set('requests:logs.all', step, 10);
        of.history.set('errors:logs.all', step, step <= NOW + 1 ? 10 : 0);
      }
      return of;
    };
    const effects = ['SluiceNotConsuming', 'SluiceStalled', 'SluiceLag', 'SluiceAuditBehind', 'SluiceErrors'];
    const firing = (of: Facts, step = NOW): string[] =>
      evaluateAlerts(of, step)
        .filter((a) => a.state === 'firing')
        .map((a) => a.alert);

    test('is silent from before it would fire until its effects are over', () => {
      const began = NOW - 89;
      const outage = failing((step) => step >= began && step <= NOW, NOW + 40);
      // what failed already before the outage would fire
      for (const name of outage.history.names(NOW - 200, NOW))
        if (!name.startsWith('requests:'))
          for (let step = NOW - 200; step < began; step++) outage.history.set(name, step, 0);
      for (let step = began; step < began + 11; step++) expect(firing(outage, step)).toEqual([]);
      for (let step = began + 11; step <= NOW; step++)
        expect(firing(outage, step), `step ${step - began}`).toEqual(['SluiceClickHouseUnreachable']);
      for (let step = NOW + 1; step <= NOW + 40; step++)
        expect(firing(outage, step), `${step - NOW} after`).toEqual([]);
    });

    test('is not silenced by a check that fails now and then', () => {
      expect(firing(failing((step) => step % 3 !== 0)).toSorted()).toEqual(effects.toSorted());
    });

    test('is silent for a paused partition and its topic only', () => {
      const of = facts();
      for (let step = NOW - 100; step <= NOW; step++) {
        for (const topic of ['edge_logs', 'edge']) {
          of.history.set(`events:${topic}`, step, 100);
          of.history.set(`bad:${topic}`, step, 90);
        }
        of.history.set('behind:edge_logs', step, 50_000);
        of.history.set('behind:edge', step, 700_000);
        for (const partition of [3, 33]) of.history.set(`stalled:edge_logs ${partition}`, step, 1);
      }
      // a page has just begun to look
      of.history.set('paused:edge_logs partition 3', NOW, 1);
      expect(stateOf('SluicePartitionPaused', of)).toMatchObject({ subjects: ['edge_logs partition 3 firing'] });
      expect(stateOf('SluiceStalled', of)).toMatchObject({ subjects: ['edge_logs 33 firing'] });
      expect(stateOf('SluiceDeadLetters', of)).toMatchObject({ subjects: ['edge firing'] });
      expect(stateOf('SluiceLag', of)).toMatchObject({ subjects: ['edge firing'] });
    });

    test('of refused pushes is silent while nothing is consumed', () => {
      const of = facts();
      for (let step = NOW - 100; step <= NOW; step++) {
        of.history.set('pushes:push', step, 10);
        of.history.set('refused pushes:push', step, 10);
      }
      expect(firing(of)).toEqual(['SluicePushRefused']);
      for (let step = NOW - 100; step <= NOW; step++) of.history.set('apart:ingest', step, 1);
      expect(firing(of)).toEqual(['SluiceNotConsuming']);
    });
  });

  test('of shares counts over its window, and nothing at all is no share', () => {
    const of = facts();
    for (let step = NOW - 200; step <= NOW; step++) {
      of.history.set('events:edge_logs', step, 100);
      of.history.set('bad:edge_logs', step, 1);
      of.history.set('events:auth_logs', step, 100);
      of.history.set('bad:auth_logs', step, 2);
      of.history.set('events:storage_logs', step, 0);
    }
    expect(stateOf('SluiceDeadLetters', of)).toMatchObject({ state: 'firing', subjects: ['auth_logs firing'] });
  });

  test('of freshness fires only where events become visible', () => {
    const of = facts();
    for (let step = NOW - 90; step <= NOW; step++) {
      of.history.set('delay:edge_logs', step, 61);
      of.history.set('events:edge_logs', step, 5);
      of.history.set('delay:auth_logs', step, 61);
    }
    expect(stateOf('SluiceStale', of)).toMatchObject({ state: 'firing', subjects: ['edge_logs firing'] });
  });

  test('of refused commits counts them a second', () => {
    const of = facts();
    for (let step = NOW - 200; step <= NOW; step++) of.history.set('refused commits:ingest', step, 5);
    expect(stateOf('SluiceCommitsRefused', of)).toEqual(ok);
    for (let step = NOW + 1; step <= NOW + 200; step++) of.history.set('refused commits:ingest', step, 6);
    expect(stateOf('SluiceCommitsRefused', of, NOW + 200)).toMatchObject({ state: 'firing' });
  });

  test('of the cache fires under real traffic only', () => {
    const of = facts();
    for (let step = NOW - 359; step <= NOW; step++) {
      of.history.set('cacheable:busy', step, 20);
      of.history.set('hits:busy', step, 9);
      of.history.set('cacheable:idle', step, 9);
      of.history.set('hits:idle', step, 0);
    }
    // the first half hour has not yet asked for enough
    expect(stateOf('SluiceCacheCold', of)).toMatchObject({ subjects: ['busy pending'] });
  });
});
