import { useState } from 'preact/hooks';
import type { EndpointStatus, Series, Status, SystemStatus } from '../../wire.ts';
import { Chart } from '../chart.ts';
import { clock, compact, duration, number, percent, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Empty, Table } from '../parts.ts';
import { addressOf } from '../route.ts';
import { Alerts } from './alerts.ts';

interface Props {
  readonly status: Status;
  /** steps that the charts show */
  readonly shown: number;
  readonly zone: Zone;
}

const RANGES = [
  ['10 min', 60],
  ['30 min', 180],
  ['1 hour', 360],
] as const;

/** Shows the last hour of the system, live. */
export function Overview({ status, zone }: Omit<Props, 'shown'>): View {
  const { system } = status;
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  // if the system has just started, an hour would be an empty chart
  const shown = chosen ?? RANGES.map(([, steps]) => steps).find((steps) => steps >= knownSteps(status)) ?? status.steps;
  return html`<div class="heading">
      <h1>Overview</h1>
      <span class="group" role="group" aria-label="Time that the charts show"
        >${RANGES.map(([name, steps]) => html`<button type="button" class="small" aria-pressed=${shown === steps} onClick=${() => setChosen(steps)}>${name}</button>`)}</span
      >
    </div>
    ${
      system === null
        ? html`<p class="note">
            Your key <b>${status.key.name}</b> sees the endpoints that it may call. Traffic, lag, dead letters, rollups
            and alerts need a key with the scope <code>admin</code>.
          </p>`
        : html`${!system.store_answers && html`<p class="note bad" role="alert">${system.store_seen_at === null ? 'ClickHouse does not answer yet.' : `ClickHouse has not answered since ${clock(system.store_seen_at, zone)}. What it knows is shown as of then.`}</p>`}
            <${Tiles} system=${system} status=${status} />
            <${Alerts} alerts=${system.alerts} />
            <${Traffic} system=${system} status=${status} zone=${zone} shown=${shown} />`
    }
    <${Requests} status=${status} zone=${zone} shown=${shown} />
    ${system !== null && html`<${Tables} system=${system} status=${status} zone=${zone} />`}`;
}

/** Returns the number of steps since the first one with a count. */
function knownSteps({ steps, system, endpoints }: Status): number {
  const first = Math.min(
    steps,
    ...[...(system?.topics ?? []).map((t) => t.events), ...endpoints.map((e) => e.requests)]
      .map((values) => values.findIndex((v) => v !== null && v > 0))
      .filter((i) => i >= 0),
  );
  return steps - first;
}

const timesOf = ({ from, steps, step_seconds: step }: Status, shown: number): number[] =>
  Array.from({ length: steps }, (_, i) => from + i * step).slice(-shown);
const perSecond = (values: Series, step: number): (number | null)[] =>
  values.map((v) => (v === null ? null : v / step));
const total = (values: Series): number => values.reduce<number>((a, b) => a + (b ?? 0), 0);

function Tile({
  name,
  value,
  more,
  tone = '',
}: {
  readonly name: string;
  readonly value: string;
  readonly more: string;
  readonly tone?: string;
}): View {
  return html`<li class=${`tile ${tone}`}><span>${name}</span><b>${value}</b><small>${more}</small></li>`;
}

function Tiles({ system, status }: { readonly system: SystemStatus; readonly status: Status }): View {
  const rate = system.topics.reduce((sum, t) => sum + (t.events.at(-1) ?? 0), 0) / status.step_seconds;
  const events = system.topics.reduce((sum, t) => sum + t.events_last_hour, 0);
  const newest = Math.max(0, ...system.topics.map((t) => t.newest_ms ?? 0));
  const lags = system.topics.map((t) => t.lag_now).filter((lag) => lag !== null);
  const open = system.dead_letter_totals.reduce((sum, d) => sum + d.letters - d.replayed, 0);
  const letters = system.dead_letters.reduce((sum, d) => sum + total(d.letters), 0);
  const { requests, errors, hits, cacheable } = sumOf(status.endpoints);
  return html`<ul class="tiles">
    <${Tile} name="Events per second" value=${number(rate)} more=${`${events.toLocaleString('en')} in the last hour`} />
    <${Tile}
      name="Newest event"
      value=${newest === 0 ? '–' : duration(Math.max(0, status.now - newest))}
      more=${newest === 0 ? 'none in the last hour' : 'old, as queries see it'}
    />
    <${Tile}
      name="Lag"
      value=${system.ingest_here ? compact(lags.reduce((a, b) => a + b, 0)) : 'unknown'}
      more=${system.ingest_here ? 'records wait in Kafka' : 'ingest runs in another process'}
    />
    <${Tile}
      name="Dead letters"
      value=${compact(open)}
      more=${`not replayed; ${letters.toLocaleString('en')} in the last hour`}
      tone=${letters > 0 ? 'warn' : ''}
    />
    <${Tile}
      name="Paused partitions"
      value=${String(system.paused.length)}
      more=${system.paused.length === 0 ? 'all of them go on' : 'too many bad messages'}
      tone=${system.paused.length > 0 ? 'bad' : ''}
    />
    <${Tile}
      name="Requests"
      value=${compact(requests)}
      more=${`${errors.toLocaleString('en')} failed in the last hour`}
      tone=${errors > 0 ? 'warn' : ''}
    />
    <${Tile}
      name="From the cache"
      value=${cacheable === 0 ? '–' : percent(hits / cacheable)}
      more=${cacheable === 0 ? 'no cached endpoint was asked' : `of ${cacheable.toLocaleString('en')} answers`}
    />
  </ul>`;
}

function sumOf(endpoints: readonly EndpointStatus[]): {
  requests: number;
  errors: number;
  hits: number;
  cacheable: number;
} {
  const of = (name: 'requests' | 'errors' | 'hits' | 'cacheable'): number =>
    endpoints.reduce((sum, e) => sum + total(e[name]), 0);
  return { requests: of('requests'), errors: of('errors'), hits: of('hits'), cacheable: of('cacheable') };
}

function Traffic({ system, status, zone, shown }: { readonly system: SystemStatus } & Props): View {
  const times = timesOf(status, shown);
  const common = { times, zone };
  return html`<section class="charts" aria-label="Traffic">
    <${Chart}
      ...${common}
      title="Events"
      unit="per second, by topic"
      curves=${system.topics.map((t) => ({ label: t.topic, shape: 'line', values: perSecond(t.events.slice(-shown), status.step_seconds) }))}
      empty="No topic had events in the last hour. npm run demo sends some."
    />
    <${Chart}
      ...${common}
      title="Freshness"
      unit="age of the newest visible event, by topic"
      isLogarithmic=${true}
      show=${(s: number) => (s <= 0.001 ? '0 s' : duration(s * 1000))}
      curves=${system.topics.map((t) => ({ label: t.topic, shape: 'line', values: t.age_ms.slice(-shown).map((ms) => (ms === null ? null : ms / 1000)) }))}
    />
    <${Chart}
      ...${common}
      title="Lag"
      unit="records that wait in Kafka, by topic"
      curves=${system.topics.map((t) => ({ label: t.topic, shape: 'line', values: t.lag.slice(-shown) }))}
      empty=${system.ingest_here ? 'Nothing was measured yet.' : 'Ingest runs in another process: its /metrics has sluice_ingest_lag_records.'}
    />
    <${Chart}
      ...${common}
      title="Dead letters"
      unit="in ten seconds, by reason"
      isStacked=${true}
      curves=${system.dead_letters.map((d) => ({ label: d.reason, shape: 'bar', values: d.letters.slice(-shown) }))}
      empty="No dead letter in the last hour."
    />
  </section>`;
}

function Requests({ status, zone, shown }: Props): View {
  const { endpoints } = status;
  const common = { times: timesOf(status, shown), zone };
  const nobody = 'No endpoint was asked in the last hour.';
  const step = status.step_seconds;
  return html`<section class="charts" aria-label="Endpoints">
    <${Chart}
      ...${common}
      title="Requests"
      unit="per second, by endpoint"
      empty=${nobody}
      curves=${endpoints.map((e) => ({ label: e.endpoint, shape: 'line', values: perSecond(e.requests.slice(-shown), step) }))}
    />
    <${Chart}
      ...${common}
      title="Latency"
      unit="95th percentile, by endpoint"
      empty=${nobody}
      isLogarithmic=${true}
      show=${(ms: number) => (ms < 1 ? '<1 ms' : duration(ms))}
      curves=${endpoints.map((e) => ({ label: e.endpoint, shape: 'line', values: e.p95_ms.slice(-shown) }))}
    />
    <${Chart}
      ...${common}
      title="Errors"
      unit="answers with 5xx in ten seconds"
      empty=${nobody}
      isStacked=${true}
      curves=${endpoints.map((e) => ({ label: e.endpoint, shape: 'bar', values: e.errors.slice(-shown) }))}
    />
    <${Chart}
      ...${common}
      title="Cache"
      unit="share of answers from the cache"
      empty="No cached endpoint was asked in the last hour."
      show=${percent}
      curves=${endpoints.filter((e) => total(e.cacheable) > 0).map((e) => ({ label: e.endpoint, shape: 'line', values: shareOf(e).slice(-shown) }))}
    />
  </section>`;
}

/** Averages the last five minutes at each step: single requests would jump between 0 and 1. */
function shareOf({ hits, cacheable }: EndpointStatus): (number | null)[] {
  const steps = 30;
  return cacheable.map((_, i) => {
    const asked = total(cacheable.slice(Math.max(0, i - steps + 1), i + 1));
    return asked === 0 ? null : total(hits.slice(Math.max(0, i - steps + 1), i + 1)) / asked;
  });
}

type Topic = SystemStatus['topics'][number];
type Paused = SystemStatus['paused'][number];
type Rollup = SystemStatus['rollups'][number];

function Tables({ system, status, zone }: { readonly system: SystemStatus } & Omit<Props, 'shown'>): View {
  return html`<${Topics} topics=${system.topics} stepSeconds=${status.step_seconds} now=${status.now} />
    ${system.paused.length > 0 && html`<${PausedPartitions} paused=${system.paused} zone=${zone} />`}
    <${Rollups} rollups=${system.rollups} zone=${zone} />`;
}

function Topics({
  topics,
  stepSeconds,
  now,
}: {
  readonly topics: readonly Topic[];
  readonly stepSeconds: number;
  readonly now: number;
}): View {
  return html`<section class="panel">
      <h2>Topics</h2>
      ${
        topics.length === 0
          ? html`<${Empty} title="No topic had events in the last hour." />`
          : html`<${Table}
              label="Topics"
              rows=${topics}
              rowKey=${(t: Topic) => t.topic}
              columns=${[
                { name: 'Topic', cell: (t: Topic) => t.topic },
                {
                  name: 'Events per second',
                  isNumber: true,
                  cell: (t: Topic) => number((t.events.at(-1) ?? 0) / stepSeconds),
                },
                {
                  name: 'Last hour',
                  isNumber: true,
                  cell: (t: Topic) =>
                    html`<span data-topic=${t.topic}>${t.events_last_hour.toLocaleString('en')}</span>`,
                },
                {
                  name: 'Newest event',
                  isNumber: true,
                  cell: (t: Topic) => (t.newest_ms === null ? '–' : `${duration(Math.max(0, now - t.newest_ms))} ago`),
                },
                {
                  name: 'Lag',
                  isNumber: true,
                  cell: (t: Topic) => (t.lag_now === null ? 'unknown' : t.lag_now.toLocaleString('en')),
                },
              ]}
            />`
      }
    </section>`;
}

function PausedPartitions({ paused, zone }: { readonly paused: readonly Paused[]; readonly zone: Zone }): View {
  return html`<section class="panel bad">
        <h2>Paused partitions</h2>
        <${Table}
          label="Paused partitions"
          rows=${paused}
          columns=${[
            {
              name: 'Topic',
              cell: (p: Paused) =>
                html`<a href=${addressOf('dead-letters', '', { topic: p.topic, open: 'true' })}>${p.topic}</a>`,
            },
            { name: 'Partition', isNumber: true, cell: (p: Paused) => p.partition },
            {
              name: 'Bad messages',
              isNumber: true,
              cell: (p: Paused) => `${p.bad.toLocaleString('en')} of ${p.messages.toLocaleString('en')}`,
            },
            { name: 'Until', cell: (p: Paused) => clock(Date.parse(p.paused_until), zone) },
          ]}
        />
      </section>`;
}

function Rollups({ rollups, zone }: { readonly rollups: readonly Rollup[]; readonly zone: Zone }): View {
  return html`<section class="panel">
      <h2>Rollups</h2>
      <${Table}
        label="Rollups"
        rows=${rollups}
        columns=${[
          { name: 'Rollup', cell: (r: Rollup) => `${r.name} v${r.version}` },
          {
            name: 'State',
            cell: (r: Rollup) =>
              html`<span class=${`badge ${r.state === 'serving' ? 'good' : 'warn'}`}>${r.state}</span>`,
          },
          {
            name: 'Holds',
            cell: (r: Rollup) =>
              r.pending === 0
                ? 'everything'
                : `all but ${r.pending.toLocaleString('en')} ${r.pending === 1 ? 'period' : 'periods'}`,
          },
          {
            name: 'Compared with raw up to',
            cell: (r: Rollup) => (r.audited_to === null ? 'unknown' : clock(r.audited_to * 1000, zone)),
          },
          { name: 'To be repaired', isNumber: true, cell: (r: Rollup) => r.repairs },
          {
            name: 'Spans that differ',
            isNumber: true,
            cell: (r: Rollup) => html`<span class=${r.differences > 0 ? 'bad' : ''}>${r.differences}</span>`,
          },
        ]}
      />
    </section>`;
}
