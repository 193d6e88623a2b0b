import { useEffect, useMemo, useState } from 'preact/hooks';
import { mayCall } from '../../wire.ts';
import { call, CallError, callJson, type Answer } from '../api.ts';
import { Chart } from '../chart.ts';
import { bytes, duration, number, shellWord, timestamp, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Copy, Empty, Failure, Table, useWork } from '../parts.ts';
import { addressOf, go, queryOf, type Place } from '../route.ts';
import { Events, isEntries, Tree } from './events.ts';
import { Form } from './form.ts';
import { Digits, parseExactly } from './json.ts';
import { nextPage, SHOWN, withoutShown } from './paging.ts';
import { secondsOf, seriesOf, withEmptyBuckets, type Row } from './series.ts';
import { endpointsOf, type Endpoint, type Specification } from './specification.ts';

interface Props {
  readonly place: Place;
  readonly zone: Zone;
  readonly scopes: readonly string[];
}

/** Shows every endpoint: a form of its parameters, and the answer. The address holds the call. */
export function Explore({ place, zone, scopes }: Props): View {
  const [endpoints, setEndpoints] = useState<readonly Endpoint[] | undefined>(undefined);
  const loading = useWork();
  const load = (): void =>
    void loading.run(async (signal) =>
      setEndpoints(endpointsOf(await callJson<Specification>('/openapi.json', { signal }))),
    );
  useEffect(load, []);
  if (loading.error !== undefined)
    return html`<h1>Explore</h1>
      <${Failure} error=${loading.error} />
      <p><button type="button" onClick=${load}>Try again</button></p>`;
  if (endpoints === undefined)
    return html`<h1>Explore</h1>
      <p class="quiet">Reading the endpoints…</p>`;
  const endpoint =
    endpoints.find((e) => e.name === place.item) ??
    (place.item === '' ? (endpoints.find((e) => mayCall(scopes, e.name)) ?? endpoints[0]) : undefined);
  return html`<h1>Explore</h1>
    <nav class="choices" aria-label="Endpoints">
      ${endpoints.map((e) => html`<a key=${e.name} href=${addressOf('explore', e.name, kept(e, place.params))} aria-current=${e.name === endpoint?.name ? 'page' : undefined} class=${mayCall(scopes, e.name) ? '' : 'refused'}>${e.name}</a>`)}
    </nav>
    ${
      endpoint === undefined
        ? html`<${Empty} title="There is no such endpoint.">The service does not offer <code>${place.item}</code>.<//>`
        : html`${!mayCall(scopes, endpoint.name) && html`<p class="note">Your key may not call this endpoint: it lacks the scope <code>query</code> or <code>query:${endpoint.name}</code>.</p>`}
            <${Asked} key=${endpoint.name} endpoint=${endpoint} place=${place} zone=${zone} />`
    }`;
}

/** Returns the parameters that another endpoint can use, usually the project. */
function kept(endpoint: Endpoint, params: URLSearchParams): Record<string, string> {
  const project = params.get('project') ?? '';
  return endpoint.parameters.some((p) => p.name === 'project') && project !== '' ? { project } : {};
}

interface Shown {
  readonly query: string;
  readonly answer: Answer;
  readonly rows: readonly Row[];
}

interface AskedProps extends Pick<Props, 'place' | 'zone'> {
  readonly endpoint: Endpoint;
}

function Asked({ endpoint, place, zone }: AskedProps): View {
  const values = Object.fromEntries(endpoint.parameters.map((p) => [p.name, place.params.get(p.name) ?? '']));
  const query = queryOf(values);
  const isComplete = endpoint.parameters.every((p) => !p.isRequired || values[p.name] !== '');
  const [shown, setShown] = useState<Shown | undefined>(undefined);
  const { isBusy, error, run } = useWork();
  const ask = (): void =>
    void run(async (signal) => {
      if (!isComplete) return setShown(undefined);
      const answer = await call(`${endpoint.path}${query === '' ? '' : `?${query}`}`, { signal });
      const { result } = parseExactly(answer.text) as { result: readonly Row[] };
      setShown({ query, answer, rows: result });
    });
  useEffect(ask, [query]);
  // the page is drawn every second, and an answer may have megabytes
  const result = useMemo(
    () => shown !== undefined && html`<${Result} endpoint=${endpoint} shown=${shown} place=${place} zone=${zone} />`,
    [endpoint, shown, place, zone],
  );

  const onAsk = (entered: Readonly<Record<string, string>>): void => {
    go(addressOf('explore', endpoint.name, entered));
    // another address may hold the same call
    if (queryOf(entered) === query) ask();
  };
  return html`<p class="description">${endpoint.description.split('\n\n')[0]}</p>
    <${Form}
      endpoint=${endpoint}
      values=${values}
      zone=${zone}
      isBusy=${isBusy}
      mistakes=${error instanceof CallError ? error.mistakes : []}
      onAsk=${onAsk}
    />
    ${error !== undefined && html`<${Failure} error=${error} />`}
    ${error === undefined && result}
    ${error === undefined && shown === undefined && !isBusy && html`<${Empty} title="Nothing asked yet.">${isComplete ? '' : html`Fill in the required parameters. <code>npm run demo</code> names its busiest project when it starts.`}<//>`}`;
}

const LIMIT = 'limit';
const MOST_ENTRIES = 100;
const END = 'iso_timestamp_end';

function Result({ endpoint, shown, place, zone }: AskedProps & { readonly shown: Shown }): View {
  const { answer, rows, query } = shown;
  const url = `${location.origin}${endpoint.path}${query === '' ? '' : `?${query}`}`;
  const curl = `curl -H "X-API-KEY: $API_KEY" ${shellWord(url)}`;
  const cache = answer.headers.get('x-cache');
  const age = answer.headers.get('age');
  return html`<section class="result" aria-label="Answer" data-query=${query}>
    <ul class="facts">
      <li><b>${rows.length.toLocaleString('en')}</b> ${rows.length === 1 ? 'row' : 'rows'}</li>
      <li><b>${duration(answer.ms)}</b></li>
      <li><b>${bytes(new TextEncoder().encode(answer.text).length)}</b></li>
      ${cache !== null && cache !== 'none' && html`<li>cache <b class="cache">${cache}</b></li>`}${age !== null && html`<li>age <b class="age">${age === '0' ? '<1 s' : duration(Number(age) * 1000)}</b></li>`}
      ${answer.headers.get('x-result-truncated') === 'true' && html`<li class="bad">cut at its largest number of rows</li>`}
    </ul>
    <div class="curl"><code>${curl}</code><${Copy} text=${() => curl} label="Copy" /></div>
    ${rows.length === 0 ? html`<${Empty} title="The answer has no rows.">Nothing matches these parameters.<//>` : html`<${Rows} endpoint=${endpoint} rows=${rows} place=${place} zone=${zone} />`}
  </section>`;
}

function Rows({ endpoint, rows, place, zone }: AskedProps & Pick<Shown, 'rows'>): View {
  if (isEntries(rows)) {
    const entries = withoutShown(rows, place.params.get(END) ?? '', Number(place.params.get(SHOWN) ?? 0));
    const next = endpoint.parameters.some((p) => p.name === END)
      ? nextPage(rows, Number(place.params.get(LIMIT) ?? '') || MOST_ENTRIES)
      : undefined;
    const params = new URLSearchParams(place.params);
    if (next !== undefined) {
      params.set(END, next.end);
      params.set(SHOWN, String(next.shown));
    }
    return html`${next?.isCut === true && html`<p class="note">More than ${rows.length} entries share this microsecond. Those that do not fit on this page are not shown.</p>`}
      <${Events}
        entries=${entries}
        zone=${zone}
        next=${next === undefined ? undefined : addressOf('explore', endpoint.name, params)}
      />`;
  }
  const found = seriesOf(rows);
  const series = found === undefined ? undefined : withEmptyBuckets(found);
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return html`${series !== undefined && html`<${Chart} title=${endpoint.name} zone=${zone} height=${280} ...${series} show=${number} showRight=${(ms: number) => `${number(ms)} ms`} />`}
    <${Table}
      label="Rows"
      rows=${rows}
      columns=${columns.map((name) => ({ name, isNumber: rows.some((r) => typeof r[name] === 'number') && name !== 'timestamp', cell: (row: Row) => html`<${Cell} name=${name} value=${row[name]} zone=${zone} />` }))}
    />`;
}

function Cell({ name, value, zone }: { readonly name: string; readonly value: unknown; readonly zone: Zone }): View {
  if (value === null || value === undefined) return html`<span class="quiet">null</span>`;
  const seconds = name === 'timestamp' && typeof value === 'string' ? secondsOf(value) : undefined;
  if (seconds !== undefined) return html`<span class="when" title=${value}>${timestamp(seconds * 1e6, zone)}</span>`;
  if (name === 'timestamp' && typeof value === 'number')
    return html`<span class="when" title=${String(value)}>${timestamp(value, zone)}</span>`;
  if (typeof value === 'number') return Number.isInteger(value) ? value.toLocaleString('en') : String(value);
  if (value instanceof Digits) return value.source;
  if (typeof value === 'object') return html`<${Tree} name="" value=${value} depth=${9} />`;
  return typeof value === 'string' ? value : JSON.stringify(value);
}
