import { useState } from 'preact/hooks';
import type { EndpointStatus, PausedPartition, RollupStatus, Series, Status, SystemStatus } from '../../wire.ts';
import { Chart } from '../chart.ts';
import { clock, compact, duration, number, percent, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Empty, Table, type Column } from '../parts.ts';
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
  const { system, key } = status;
  // requests are counted for all projects together, so such a key learns nothing of them
  const isLimited = key.projects.length > 0;
  const sees = isLimited
    ? 'is limited to projects. Charts of requests need a key for all projects.'
    : 'sees the endpoints that it may call.';
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  // if the system has just started, an hour would be an empty chart
  const shown = chosen ?? RANGES.map(([, steps]) => steps).find((steps) => steps >= knownSteps(status)) ?? status.steps;
  return html`<div class="heading">
      <h1>Overview</h1>
      ${
        !isLimited &&
        html`<span class="group" role="group" aria-label="Time that the charts show"
        >${RANGES.map(([name, steps]) => html`<button type="button" class="small" aria-pressed=${shown === steps} onClick=${() => setChosen(steps)}>${name}</button>`)}</span
      >`
      }
    </div>
    ${
      system === null
        ? html`<p class="note">
            Your key <b>${key.name}</b> ${sees} Traffic, lag, dead letters, rollups and alerts need a key with the
            scope <code>admin</code>.
          </p>`
        : html`${!system.store_answers && html`<p class="note bad" role="alert">${system.store_seen_at === null ? 'ClickHouse does not answer yet.' : `ClickHouse has not answered since ${clock(system.store_seen_at, zone)}. What it knows is shown as of then.`}</p>`}
            <${Tiles} system=${system} status=${status} />
            <${Alerts} alerts=${system.alerts} />
            <${Traffic} system=${system} status=${status} zone=${zone} shown=${shown} />`
    }
    ${!isLimited && html`<${Requests} status=${status} zone=${zone} shown=${shown} />`}
    ${
      system !== null &&
      html`<${Topics} topics=${system.topics} status=${status} />
        ${system.paused.length > 0 && html`<${PausedPartitions} paused=${system.paused} zone=${zone} />`}
        <${Rollups} rollups=${system.rollups} zone=${zone} />`
    }`;
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

type Tile = readonly [name: string, value: string, more: string, tone?: string];

export function tilesOf(system: SystemStatus, status: Status): readonly Tile[] {
  const rate = system.topics.reduce((sum, t) => sum + (t.events.at(-1) ?? 0), 0) / status.step_seconds;
  const events = system.topics.reduce((sum, t) => sum + t.events_last_hour, 0);
  const newest = Math.max(0, ...system.topics.map((t) => t.newest_ms ?? 0));
  const lags = system.topics.map((t) => t.lag_now).filter((lag) => lag !== null);
  const open = system.dead_letter_totals?.reduce((sum, d) => sum + d.letters - d.replayed, 0);
  const letters = system.dead_letters.reduce((sum, d) => sum + total(d.letters), 0);
  const sumOf = (name: 'requests' | 'errors' | 'hits' | 'cacheable'): number =>
    status.endpoints.reduce((sum, e) => sum + total(e[name]), 0);
  const [requests, errors, hits, cacheable] = [sumOf('requests'), sumOf('errors'), sumOf('hits'), sumOf('cacheable')];
  return [
    ['Events per second', number(rate), `${events.toLocaleString('en')} in the last hour`],
    newest === 0
      ? ['Newest event', '–', 'none in the last hour']
      : ['Newest event', duration(Math.max(0, status.now - newest)), 'old, as queries see it'],
    lags.length === 0
      ? ['Lag', 'unknown', system.ingest_here ? 'not measured now' : 'ingest runs in another process']
      : ['Lag', compact(lags.reduce((a, b) => a + b, 0)), 'records wait in Kafka'],
    [
      'Dead letters',
      open === undefined ? 'unknown' : compact(open),
      `not replayed; ${letters.toLocaleString('en')} in the last hour`,
      letters > 0 ? 'warn' : '',
    ],
    system.paused.length > 0
      ? ['Paused partitions', String(system.paused.length), 'too many bad messages', 'bad']
      : system.store_answers
        ? ['Paused partitions', '0', 'none has too many bad messages']
        : ['Paused partitions', 'unknown', 'ClickHouse does not answer'],
    ['Requests', compact(requests), `${errors.toLocaleString('en')} failed in the last hour`, errors > 0 ? 'warn' : ''],
    cacheable === 0
      ? ['From the cache', '–', 'no cached endpoint was asked']
      : ['From the cache', percent(hits / cacheable), `of ${cacheable.toLocaleString('en')} answers`],
  ];
}

function Tiles({ system, status }: { readonly system: SystemStatus; readonly status: Status }): View {
  return html`<ul class="tiles">
    ${tilesOf(system, status).map(([name, value, more, tone = '']) => html`<li class=${`tile ${tone}`}><span>${name}</span><b>${value}</b><small>${more}</small></li>`)}
  </ul>`;
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
      empty="No topic had events in the last hour. On your own laptop, npm run demo sends some."
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

function Topics({ topics, status }: { readonly topics: readonly Topic[]; readonly status: Status }): View {
  const { step_seconds: step, now } = status;
  const columns: readonly Column<Topic>[] = [
    { name: 'Topic', cell: (t) => t.topic },
    { name: 'Events per second', isNumber: true, cell: (t) => number((t.events.at(-1) ?? 0) / step) },
    {
      name: 'Last hour',
      isNumber: true,
      cell: (t) => html`<span data-topic=${t.topic}>${t.events_last_hour.toLocaleString('en')}</span>`,
    },
    {
      name: 'Newest event',
      isNumber: true,
      cell: (t) => (t.newest_ms === null ? '–' : `${duration(Math.max(0, now - t.newest_ms))} ago`),
    },
    { name: 'Lag', isNumber: true, cell: (t) => (t.lag_now === null ? 'unknown' : t.lag_now.toLocaleString('en')) },
  ];
  return html`<section class="panel">
    <h2>Topics</h2>
    ${
      topics.length === 0
        ? html`<${Empty} title="No topic had events in the last hour." />`
        : html`<${Table} label="Topics" rows=${topics} rowKey=${(t: Topic) => t.topic} columns=${columns} />`
    }
  </section>`;
}

function PausedPartitions({
  paused,
  zone,
}: {
  readonly paused: readonly PausedPartition[];
  readonly zone: Zone;
}): View {
  const columns: readonly Column<PausedPartition>[] = [
    {
      name: 'Topic',
      cell: ({ topic }) => html`<a href=${addressOf('dead-letters', '', { topic, open: 'true' })}>${topic}</a>`,
    },
    { name: 'Partition', isNumber: true, cell: (p) => p.partition },
    {
      name: 'Bad messages',
      isNumber: true,
      cell: (p) => `${p.bad.toLocaleString('en')} of ${p.messages.toLocaleString('en')}`,
    },
    { name: 'Until', cell: (p) => clock(Date.parse(p.paused_until), zone) },
  ];
  return html`<section class="panel bad">
    <h2>Paused partitions</h2>
    <${Table} label="Paused partitions" rows=${paused} columns=${columns} />
  </section>`;
}

function Rollups({ rollups, zone }: { readonly rollups: readonly RollupStatus[]; readonly zone: Zone }): View {
  const columns: readonly Column<RollupStatus>[] = [
    { name: 'Rollup', cell: (r) => `${r.name} v${r.version}` },
    {
      name: 'State',
      cell: (r) => html`<span class=${`badge ${r.state === 'serving' ? 'good' : 'warn'}`}>${r.state}</span>`,
    },
    {
      name: 'Holds',
      cell: ({ pending }) =>
        pending === 0
          ? 'everything'
          : `all but ${pending.toLocaleString('en')} ${pending === 1 ? 'period' : 'periods'}`,
    },
    {
      name: 'Compared with raw up to',
      cell: (r) => (r.audited_to === null ? 'unknown' : clock(r.audited_to * 1000, zone)),
    },
    { name: 'To be repaired', isNumber: true, cell: (r) => r.repairs },
    {
      name: 'Spans that differ',
      isNumber: true,
      cell: (r) => html`<span class=${r.differences > 0 ? 'bad' : ''}>${r.differences}</span>`,
    },
  ];
  return html`<section class="panel">
    <h2>Rollups</h2>
    <${Table} label="Rollups" rows=${rollups} columns=${columns} />
  </section>`;
}
