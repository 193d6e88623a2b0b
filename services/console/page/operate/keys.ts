import { useEffect, useState } from 'preact/hooks';
import { callJson, call, CallError } from '../api.ts';
import { timestamp, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Copy, Dialog, Empty, Failure, Table, useWork } from '../parts.ts';
import { endpointsOf, hasOperation, type Specification } from '../explore/specification.ts';

interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  readonly projects: readonly string[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
}

interface CreatedKey {
  readonly id: string;
  readonly key: string;
  readonly name: string;
}

const ROTATE = '/api/keys/{id}/rotate';

/** Shows API keys: create (shown once), rotate, revoke. */
export function Keys({ zone }: { readonly zone: Zone }): View {
  const [keys, setKeys] = useState<readonly ListedKey[] | undefined>(undefined);
  const [specification, setSpecification] = useState<Specification>({ paths: {} });
  const [filter, setFilter] = useState('');
  const [made, setMade] = useState<CreatedKey | undefined>(undefined);
  const [asked, setAsked] = useState<Asked | undefined>(undefined);
  const loading = useWork();
  const load = (): void =>
    void loading.run(async () => setKeys((await callJson<{ keys: readonly ListedKey[] }>('/api/keys')).keys));
  useEffect(() => {
    load();
    callJson<Specification>('/openapi.json').then(setSpecification, () => undefined);
    return undefined;
  }, []);

  const canRotate = hasOperation(specification, ROTATE, 'post');
  const wanted = filter.trim().toLowerCase();
  const shown = (keys ?? []).filter(
    (k) =>
      wanted === '' || [k.id, k.name, ...k.scopes, ...k.projects].some((text) => text.toLowerCase().includes(wanted)),
  );
  return html`<h1>Keys</h1>
    <p class="description">
      A key is shown once, when it is made: the service keeps only its hash. The first admin key is not listed; it is
      API_KEY, or stands in the data folder.
    </p>
    <${Create}
      endpoints=${endpointsOf(specification).map((e) => e.name)}
      onMade=${(key: CreatedKey) => {
        setMade(key);
        load();
      }}
    />
    ${loading.error !== undefined && html`<${Failure} error=${loading.error} />`}
    ${keys !== undefined && keys.length === 0 && html`<${Empty} title="No keys yet.">Make one for each dashboard or service that calls the endpoints.<//>`}
    ${
      keys !== undefined &&
      keys.length > 0 &&
      html`<div class="filter">
          <label for="key-filter">Filter</label
          ><input
            id="key-filter"
            type="search"
            value=${filter}
            onInput=${(e: Event) => setFilter((e.target as HTMLInputElement).value)}
          />
          <span class="quiet" aria-live="polite"
            >${shown.length.toLocaleString('en')} of ${keys.length.toLocaleString('en')}</span
          >
        </div>
        <${Table}
          label="Keys"
          rows=${shown}
          rowKey=${(k: ListedKey) => k.id}
          columns=${columnsOf(zone, canRotate, setAsked)}
        />`
    }
    ${
      made !== undefined &&
      html`<${Dialog} title=${`The key ${made.name}`} onClose=${() => setMade(undefined)}
        ><p>Copy it now: it is not shown again.</p>
        <div class="curl"><code id="made-key">${made.key}</code><${Copy} text=${made.key} label="Copy" /></div
      ><//>`
    }
    ${asked?.does === 'revoke' && html`<${Revoke} of=${asked.key} onClose=${() => setAsked(undefined)} onDone=${load} />`}
    ${
      asked?.does === 'rotate' &&
      html`<${Rotate}
        of=${asked.key}
        onClose=${() => setAsked(undefined)}
        onDone=${(key: CreatedKey) => {
          setMade(key);
          load();
        }}
      />`
    }`;
}

interface Asked {
  readonly key: ListedKey;
  readonly does: 'revoke' | 'rotate';
}

function columnsOf(zone: Zone, canRotate: boolean, onAsk: (asked: Asked) => void) {
  const when = (iso: string | null, none: string): View =>
    iso === null
      ? html`<span class="quiet">${none}</span>`
      : html`<span class="when">${timestamp(Date.parse(iso) * 1000, zone).slice(0, 19)}</span>`;
  return [
    { name: 'Name', cell: (k: ListedKey) => html`<span title=${k.id}>${k.name}</span>` },
    { name: 'Scopes', cell: (k: ListedKey) => k.scopes.map((s) => html`<code>${s}</code> `) },
    {
      name: 'Projects',
      cell: (k: ListedKey) => (k.projects.length === 0 ? html`<span class="quiet">all</span>` : k.projects.join(', ')),
    },
    { name: 'Made', cell: (k: ListedKey) => when(k.created_at, '') },
    { name: 'Expires', cell: (k: ListedKey) => when(k.expires_at, 'never') },
    { name: 'Last used', cell: (k: ListedKey) => when(k.last_used_at, 'never') },
    {
      name: '',
      cell: (k: ListedKey) =>
        html`<span class="row"
                  >${canRotate && html`<button type="button" class="small" onClick=${() => onAsk({ key: k, does: 'rotate' })}>Rotate<span class="unseen"> ${k.name}</span></button>`}<button
                    type="button"
                    class="small danger"
                    onClick=${() => onAsk({ key: k, does: 'revoke' })}
                  >
                    Revoke<span class="unseen"> ${k.name}</span>
                  </button></span
                >`,
    },
  ];
}

function Create({
  endpoints,
  onMade,
}: {
  readonly endpoints: readonly string[];
  readonly onMade: (key: CreatedKey) => void;
}): View {
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState<readonly string[]>(['query']);
  const [projects, setProjects] = useState('');
  const [expires, setExpires] = useState('');
  const work = useWork();
  const mistakeOf = (parameter: string): string | undefined =>
    work.error instanceof CallError ? work.error.mistakes.find((m) => m.parameter === parameter)?.message : undefined;
  const toggle = (scope: string): void =>
    setScopes((before) => (before.includes(scope) ? before.filter((s) => s !== scope) : [...before, scope]));
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    void work.run(async () => {
      const at = expires === '' ? null : new Date(expires).toISOString();
      const made = await callJson<CreatedKey>('/api/keys', {
        method: 'POST',
        body: { name, scopes, projects: projects.split(/[\s,]+/).filter((p) => p !== ''), expires_at: at },
      });
      setName('');
      setProjects('');
      setExpires('');
      onMade(made);
    });
  };
  return html`<details class="panel create">
    <summary>New key</summary>
    <form class="form" onSubmit=${onSubmit}>
      <div class="field">
        <label for="new-name">Name</label
        ><input
          id="new-name"
          required
          maxlength="200"
          autocomplete="off"
          value=${name}
          onInput=${(e: Event) => setName((e.target as HTMLInputElement).value)}
        /><small class="bad">${mistakeOf('name')}</small>
      </div>
      <fieldset class="field">
        <legend>Scopes</legend>
        ${['query', 'ingest', 'admin', ...endpoints.map((e) => `query:${e}`)].map((scope) => html`<label class="check"><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} /> <code>${scope}</code></label>`)}<small
          class="bad"
          >${mistakeOf('scopes')}</small
        >
      </fieldset>
      <div class="field">
        <label for="new-projects">Projects</label
        ><input
          id="new-projects"
          autocomplete="off"
          placeholder="all"
          value=${projects}
          onInput=${(e: Event) => setProjects((e.target as HTMLInputElement).value)}
        /><small>${mistakeOf('projects') ?? 'References, separated by commas. None: the key sees all projects.'}</small>
      </div>
      <div class="field">
        <label for="new-expires">Expires (local time)</label
        ><input
          id="new-expires"
          type="datetime-local"
          value=${expires}
          onInput=${(e: Event) => setExpires((e.target as HTMLInputElement).value)}
        /><small>${mistakeOf('expires_at') ?? 'Empty: never.'}</small>
      </div>
      <div class="actions">
        <button type="submit" class="primary" disabled=${work.isBusy}>
          ${work.isBusy ? 'Making…' : 'Make the key'}
        </button>
      </div>
      ${work.error !== undefined && html`<${Failure} error=${work.error} />`}
    </form>
  </details>`;
}

function Revoke({
  of,
  onClose,
  onDone,
}: {
  readonly of: ListedKey;
  readonly onClose: () => void;
  readonly onDone: () => void;
}): View {
  const work = useWork();
  const revoke = (): Promise<void> =>
    work.run(async () => {
      await call(`/api/keys/${encodeURIComponent(of.id)}`, { method: 'DELETE' });
      onDone();
      onClose();
    });
  return html`<${Dialog} title=${`Revoke ${of.name}?`} onClose=${onClose}
    ><p>It stops working everywhere within ten seconds. This cannot be undone.</p>
    <div class="actions">
      <button type="button" class="danger" disabled=${work.isBusy} onClick=${() => void revoke()}>
        Revoke the key
      </button>
    </div>
    ${work.error !== undefined && html`<${Failure} error=${work.error} />`}<//
  >`;
}

const OVERLAPS = [
  ['3600', 'an hour'],
  ['86400', 'a day'],
  ['604800', 'a week'],
  ['0', 'not at all'],
] as const;

function Rotate({
  of,
  onClose,
  onDone,
}: {
  readonly of: ListedKey;
  readonly onClose: () => void;
  readonly onDone: (key: CreatedKey) => void;
}): View {
  const [overlap, setOverlap] = useState<string>(OVERLAPS[1][0]);
  const work = useWork();
  const rotate = (): Promise<void> =>
    work.run(async () => {
      const made = await callJson<CreatedKey>(`/api/keys/${encodeURIComponent(of.id)}/rotate`, {
        method: 'POST',
        body: { overlap_seconds: Number(overlap) },
      });
      onClose();
      onDone(made);
    });
  return html`<${Dialog} title=${`Rotate ${of.name}`} onClose=${onClose}
    ><p>Makes a new key with the same scopes and projects.</p>
    <div class="field">
      <label for="overlap">The old key goes on for</label
      ><select id="overlap" onChange=${(e: Event) => setOverlap((e.target as HTMLSelectElement).value)}>
        ${OVERLAPS.map(([value, words]) => html`<option value=${value} selected=${value === overlap}>${words}</option>`)}
      </select>
    </div>
    <div class="actions">
      <button type="button" class="primary" disabled=${work.isBusy} onClick=${() => void rotate()}>
        Rotate the key
      </button>
    </div>
    ${work.error !== undefined && html`<${Failure} error=${work.error} />`}<//
  >`;
}
