import { useEffect, useState } from 'preact/hooks';
import type { CreatedKey, ListedKey } from '../../../../common/listed-key.ts';
import { callJson, call, CallError, runCommand } from '../api.ts';
import { instant, pickedAt, type Zone } from '../format.ts';
import { html, onValue, type View } from '../html.ts';
import { Copy, Dialog, Empty, Failure, Table, TextField, useFilter, useWork, type Column } from '../parts.ts';
import { endpointsOf, type Specification } from '../explore/specification.ts';

/** Shows API keys: create (shown once), rotate, revoke. */
export function Keys({ zone }: { readonly zone: Zone }): View {
  const [keys, setKeys] = useState<readonly ListedKey[] | undefined>(undefined);
  const [endpoints, setEndpoints] = useState<readonly string[]>([]);
  const [made, setMade] = useState<CreatedKey | undefined>(undefined);
  const [asked, setAsked] = useState<Asked | undefined>(undefined);
  const loading = useWork();
  const load = (): void =>
    void loading.run(async (signal) =>
      setKeys((await callJson<{ keys: readonly ListedKey[] }>('/api/keys', { signal })).keys),
    );
  useEffect(() => {
    load();
    callJson<Specification>('/openapi.json').then(
      (specification) => setEndpoints(endpointsOf(specification).map((e) => e.name)),
      () => undefined,
    );
  }, []);
  const { shown, field } = useFilter('key-filter', 'Filter', keys ?? [], (k) =>
    [k.id, k.name, ...k.scopes, ...k.projects].join('\n'),
  );
  const onMade = (key: CreatedKey): void => {
    setMade(key);
    load();
  };
  return html`<h1>Keys</h1>
    <p class="description">
      A key is shown once, when it is made: the service keeps only its hash. The first admin key is not listed; it is
      API_KEY, or stands in the data folder.
    </p>
    <${Create} endpoints=${endpoints} zone=${zone} onMade=${onMade} />
    ${loading.error !== undefined && html`<${Failure} error=${loading.error} />`}
    ${keys !== undefined && keys.length === 0 && html`<${Empty} title="No keys yet.">Make one for each dashboard or service that calls the endpoints.<//>`}
    ${
      keys !== undefined &&
      keys.length > 0 &&
      html`${field}
        <${Table}
          label="Keys"
          rows=${shown}
          rowKey=${(k: ListedKey) => k.id}
          columns=${columnsOf(zone, setAsked)}
        />`
    }
    ${
      made !== undefined &&
      html`<${Dialog} title=${`The key ${made.name}`} isKept=${true} onClose=${() => setMade(undefined)}
        ><p>Copy it now: it is not shown again.</p>
        <div class="curl"><code id="made-key">${made.key}</code><${Copy} text=${() => made.key} label="Copy" /></div
      ><//>`
    }
    ${asked?.does === 'revoke' && html`<${Revoke} of=${asked.key} onClose=${() => setAsked(undefined)} onDone=${load} />`}
    ${asked?.does === 'rotate' && html`<${Rotate} of=${asked.key} onClose=${() => setAsked(undefined)} onDone=${onMade} />`}`;
}

interface Asked {
  readonly key: ListedKey;
  readonly does: 'revoke' | 'rotate';
}

function columnsOf(zone: Zone, onAsk: (asked: Asked) => void): Column<ListedKey>[] {
  const when = (iso: string | null, none: string): View =>
    iso === null
      ? html`<span class="quiet">${none}</span>`
      : html`<span class="when">${instant(iso, zone).slice(0, 19)}</span>`;
  return [
    { name: 'Name', cell: (k) => html`<span title=${k.id}>${k.name}</span>` },
    { name: 'Scopes', cell: (k) => k.scopes.map((s) => html`<code>${s}</code> `) },
    {
      name: 'Projects',
      cell: (k) => (k.projects.length === 0 ? html`<span class="quiet">all</span>` : k.projects.join(', ')),
    },
    { name: 'Made', cell: (k) => when(k.created_at, '') },
    { name: 'Expires', cell: (k) => when(k.expires_at, 'never') },
    { name: 'Last used', cell: (k) => when(k.last_used_at, 'never') },
    {
      name: '',
      cell: (k) =>
        html`<span class="row"
                  ><button type="button" class="small" onClick=${() => onAsk({ key: k, does: 'rotate' })}>Rotate<span class="unseen"> ${k.name}</span></button
                  ><button
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

const FIELDS = ['name', 'scopes', 'projects', 'expires_at'];

function Create({
  endpoints,
  zone,
  onMade,
}: {
  readonly endpoints: readonly string[];
  readonly zone: Zone;
  readonly onMade: (key: CreatedKey) => void;
}): View {
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState<readonly string[]>(['query']);
  const [projects, setProjects] = useState('');
  const [expires, setExpires] = useState('');
  const work = useWork();
  const mistakes = work.error instanceof CallError ? work.error.mistakes : [];
  const mistakeOf = (parameter: string): string =>
    mistakes
      .filter((m) => m.parameter === parameter)
      .map((m) => m.message)
      .join('; ');
  const tied = (parameter: string) => ({
    'aria-invalid': mistakeOf(parameter) === '' ? undefined : 'true',
    'aria-describedby': `new-${parameter}-note`,
  });
  const note = (parameter: string, otherwise = ''): View =>
    html`<small id=${`new-${parameter}-note`}
      >${mistakeOf(parameter) === '' ? otherwise : html`<span class="bad" role="alert">${mistakeOf(parameter)}</span>`}</small
    >`;
  const toggle = (scope: string): void =>
    setScopes((before) => (before.includes(scope) ? before.filter((s) => s !== scope) : [...before, scope]));
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    void work.run(async () => {
      const at = expires === '' ? null : new Date(pickedAt(expires, zone)).toISOString();
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
      <${TextField} id="new-name" label="Name" required maxlength="200" autocomplete="off" value=${name} onText=${setName} ...${tied('name')}
        >${note('name')}<//
      >
      <fieldset class="field">
        <legend>Scopes</legend>
        ${['query', 'ingest', 'admin', ...endpoints.map((e) => `query:${e}`)].map((scope) => html`<label class="check"><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} ...${tied('scopes')} /> <code>${scope}</code></label>`)}${note('scopes')}
      </fieldset>
      <${TextField} id="new-projects" label="Projects" autocomplete="off" placeholder="all" value=${projects} onText=${setProjects} ...${tied('projects')}
        >${note('projects', 'References, separated by commas. None: the key sees all projects.')}<//
      >
      <${TextField} id="new-expires" label=${`Expires (${zone === 'utc' ? 'UTC' : 'local time'})`} type="datetime-local" value=${expires} onText=${setExpires} ...${tied('expires_at')}
        >${note('expires_at', 'Empty: never.')}<//
      >
      <div class="actions">
        <button type="submit" class="primary" disabled=${work.isBusy}>
          ${work.isBusy ? 'Making…' : 'Make the key'}
        </button>
      </div>
      ${work.error !== undefined && (mistakes.length === 0 || mistakes.some((m) => !FIELDS.includes(m.parameter ?? ''))) && html`<${Failure} error=${work.error} />`}
    </form>
  </details>`;
}

interface ConfirmProps {
  readonly title: string;
  readonly action: string;
  readonly tone: 'primary' | 'danger';
  readonly onConfirm: () => Promise<void>;
  readonly onClose: () => void;
  readonly children: View;
}

/** Does something to a key once the reader has confirmed it. */
function Confirm({ title, action, tone, onConfirm, onClose, children }: ConfirmProps): View {
  const work = useWork();
  return html`<${Dialog} title=${title} onClose=${onClose}
    >${children}
    <div class="actions">
      <button type="button" class=${tone} disabled=${work.isBusy} onClick=${() => void work.run(onConfirm)}>
        ${action}
      </button>
    </div>
    ${work.error !== undefined && html`<${Failure} error=${work.error} />`}<//
  >`;
}

interface ChangeProps<T> {
  readonly of: ListedKey;
  readonly onClose: () => void;
  readonly onDone: (result: T) => void;
}

function Revoke({ of, onClose, onDone }: ChangeProps<void>): View {
  const revoke = async (): Promise<void> => {
    await call(`/api/keys/${encodeURIComponent(of.id)}`, { method: 'DELETE' });
    onDone();
    onClose();
  };
  return html`<${Confirm} title=${`Revoke ${of.name}?`} action="Revoke the key" tone="danger" onConfirm=${revoke} onClose=${onClose}
    ><p>It stops working everywhere within ten seconds. This cannot be undone.</p><//
  >`;
}

const OVERLAPS = [
  ['3600', 'an hour'],
  ['86400', 'a day'],
  ['604800', 'a week'],
  ['0', 'no time'],
] as const;

function Rotate({ of, onClose, onDone }: ChangeProps<CreatedKey>): View {
  const [overlap, setOverlap] = useState<string>(OVERLAPS[1][0]);
  const rotate = async (): Promise<void> => {
    const args = { action: 'rotate', id: of.id, overlapSeconds: Number(overlap) };
    const made = await runCommand<CreatedKey | { readonly unknown: string }>('keys', args);
    if ('unknown' in made) throw new CallError('There is no such key.', {});
    onClose();
    onDone(made);
  };
  return html`<${Confirm} title=${`Rotate ${of.name}`} action="Rotate the key" tone="primary" onConfirm=${rotate} onClose=${onClose}
    ><p>Makes a new key with the same scopes and projects.</p>
    <div class="field">
      <label for="overlap">The old key stays valid for</label
      ><select id="overlap" onChange=${onValue(setOverlap)}>
        ${OVERLAPS.map(([value, words]) => html`<option value=${value} selected=${value === overlap}>${words}</option>`)}
      </select>
    </div><//
  >`;
}
