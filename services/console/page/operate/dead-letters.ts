import { useEffect, useRef, useState } from 'preact/hooks';
import type { DeadLetterPage, DeadLetterRow, DeadLetterTotal, ReplayResult } from '../../wire.ts';
import { runCommand } from '../api.ts';
import { instant, outcomeText, type Zone } from '../format.ts';
import { html, onValue, type View } from '../html.ts';
import { Empty, Failure, Table, useWork, type Column } from '../parts.ts';
import { addressOf, go, type Place } from '../route.ts';
import { Letter } from './letter.ts';

interface Props {
  readonly place: Place;
  readonly zone: Zone;
  /** by topic and reason, live; null if unknown */
  readonly totals: readonly DeadLetterTotal[] | null;
}

const PAGE_LETTERS = 100;

/** Shows messages that could not be stored: which, why, their bytes, and their replay. */
export function DeadLetters({ place, zone, totals }: Props): View {
  const filter: Filter = {
    topic: place.params.get('topic') ?? '',
    reason: place.params.get('reason') ?? '',
    open: place.params.get('open') ?? 'true',
  };
  const [pages, setPages] = useState<readonly DeadLetterPage[]>([]);
  const [shown, setShown] = useState<DeadLetterRow | undefined>(undefined);
  const { isBusy, error, run } = useWork();
  const load = (before: readonly DeadLetterPage[]): void =>
    void run(async (signal) => {
      setPages(before);
      const args = {
        action: 'list',
        filter: chosen(filter),
        limit: PAGE_LETTERS,
        after: before.at(-1)?.next ?? undefined,
      };
      const page = await runCommand<DeadLetterPage>('dead-letters', args, signal);
      setPages([...before, page]);
    });
  useEffect(() => load([]), [filter.topic, filter.reason, filter.open]);
  // another filter may be chosen before a replay ends
  const latest = useRef(load);
  latest.current = load;
  const reload = (): void => latest.current([]);

  const rows = pages.flatMap((p) => p.dead_letters);
  return html`<h1>Dead letters</h1>
    <p class="description">
      Messages that could not be stored, with their original bytes. Replaying evaluates them again with today's rules; a
      message is stored once, however often it is replayed.
    </p>
    ${totals === null && html`<${Empty} title="How many there are is not known yet." />`}
    ${totals !== null && (totals.length === 0 ? html`<${Empty} title="There are no dead letters.">Every message so far could be stored.<//>` : html`<${Table} label="Dead letters by topic and reason" rows=${totals} rowKey=${(t: DeadLetterTotal) => `${t.topic} ${t.reason}`} columns=${totalColumns} />`)}
    <${Filters} filter=${filter} known=${totals ?? rows} />
    <${ReplayAll}
      key=${`${filter.topic} ${filter.reason}`}
      topic=${filter.topic}
      reason=${filter.reason}
      open=${openOf(totals, filter)}
      onDone=${reload}
    />
    ${error !== undefined && html`<${Failure} error=${error} />`}
    ${
      rows.length > 0 &&
      html`<${Table}
        label="Dead letters"
        rows=${rows}
        rowKey=${(l: DeadLetterRow) => `${l.topic} ${l.incarnation} ${l.partition} ${l.offset}`}
        columns=${columnsOf(zone, setShown)}
      />`
    }
    ${rows.length === 0 && !isBusy && error === undefined && totals?.length !== 0 && html`<${Empty} title="No dead letter matches." />`}
    ${isBusy && html`<p class="quiet" aria-live="polite">Loading…</p>`}
    ${!isBusy && (pages.at(-1)?.next ?? null) !== null && html`<p><button type="button" onClick=${() => load(pages)}>Load ${PAGE_LETTERS} more</button> <span class="quiet">${rows.length.toLocaleString('en')} loaded</span></p>`}
    ${shown !== undefined && html`<${Letter} letter=${shown} zone=${zone} onClose=${() => setShown(undefined)} onReplayed=${reload} />`}`;
}

function columnsOf(zone: Zone, onOpen: (letter: DeadLetterRow) => void): Column<DeadLetterRow>[] {
  return [
    { name: 'Topic', cell: (l) => l.topic },
    { name: 'Partition', isNumber: true, cell: (l) => l.partition },
    { name: 'Offset', isNumber: true, cell: (l) => l.offset },
    {
      name: 'Reason',
      cell: (l) => html`<code>${l.reason}</code>${l.detail !== '' && html` <span class="quiet">${l.detail}</span>`}`,
    },
    {
      name: 'Replayed',
      cell: (l) => (l.replayed_at === null ? 'no' : instant(l.replayed_at, zone)),
    },
    {
      name: '',
      cell: (l) =>
        html`<button type="button" class="small" onClick=${() => onOpen(l)}>
                Open<span class="unseen"> ${l.topic} ${l.partition} ${l.offset}</span>
              </button>`,
    },
  ];
}

interface Filter {
  readonly topic: string;
  readonly reason: string;
  readonly open: string;
}

/** Returns the filter of a command; absent = any. */
function chosen({ topic, reason, open }: Filter): object {
  return { topic: topic || undefined, reason: reason || undefined, open: open === 'true' };
}

/** `known`: whose topics and reasons may be chosen. */
function Filters({
  filter,
  known,
}: {
  readonly filter: Filter;
  readonly known: readonly Pick<DeadLetterRow, 'topic' | 'reason'>[];
}): View {
  const select = (change: Partial<Filter>): void => go(addressOf('dead-letters', '', { ...filter, ...change }));
  return html`<form class="form inline" onSubmit=${(e: Event) => e.preventDefault()}>
      <${Choice}
        name="topic"
        value=${filter.topic}
        all="every topic"
        choices=${known.map((k) => k.topic)}
        onChoose=${(topic: string) => select({ topic })}
      />
      <${Choice}
        name="reason"
        value=${filter.reason}
        all="every reason"
        choices=${known.map((k) => k.reason)}
        onChoose=${(reason: string) => select({ reason })}
      />
      <label class="check"
        ><input
          type="checkbox"
          checked=${filter.open === 'true'}
          onChange=${(e: Event) => select({ open: (e.target as HTMLInputElement).checked ? 'true' : 'false' })}
        /> only those that were not replayed</label
      >
    </form>`;
}

function openOf(totals: Props['totals'], { topic, reason }: Filter): number | undefined {
  return totals
    ?.filter((t) => t.topic === topic && (reason === '' || t.reason === reason))
    .reduce((sum, t) => sum + t.letters - t.replayed, 0);
}

const totalColumns: readonly Column<DeadLetterTotal>[] = [
  {
    name: 'Topic',
    cell: ({ topic }) => html`<a href=${addressOf('dead-letters', '', { topic, open: 'true' })}>${topic}</a>`,
  },
  {
    name: 'Reason',
    cell: ({ topic, reason }) =>
      html`<a href=${addressOf('dead-letters', '', { topic, reason, open: 'true' })}><code>${reason}</code></a>`,
  },
  { name: 'Not replayed', isNumber: true, cell: (t) => (t.letters - t.replayed).toLocaleString('en') },
  { name: 'Replayed', isNumber: true, cell: (t) => t.replayed.toLocaleString('en') },
];

interface ChoiceProps {
  readonly name: string;
  readonly value: string;
  readonly all: string;
  readonly choices: readonly string[];
  readonly onChoose: (value: string) => void;
}

function Choice({ name, value, all, choices, onChoose }: ChoiceProps): View {
  const known = new Set(value === '' ? choices : [...choices, value]);
  return html`<div class="field">
    <label for=${`filter-${name}`}>${name}</label
    ><select id=${`filter-${name}`} onChange=${onValue(onChoose)}>
      <option value="" selected=${value === ''}>${all}</option>
      ${[...known].sort().map((c) => html`<option value=${c} selected=${c === value}>${c}</option>`)}
    </select>
  </div>`;
}

interface Progress {
  readonly tried: number;
  /** undefined if unknown */
  readonly of: number | undefined;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly state: 'running' | 'stopped' | 'done';
}

/**
 * At most 25 are replayed in a second, and fewer on a busy machine, so the progress moves at least every few seconds.
 */
const AT_A_TIME = 10;

/** Replays the filtered letters, some per call, so that progress is visible and it can be stopped. */
function ReplayAll({
  topic,
  reason,
  open,
  onDone,
}: {
  readonly topic: string;
  readonly reason: string;
  readonly open: number | undefined;
  readonly onDone: () => void;
}): View {
  const [progress, setProgress] = useState<Progress | undefined>(undefined);
  const { isBusy, error, run } = useWork();
  const stop = useRef(false);

  async function replay(gone: AbortSignal): Promise<void> {
    stop.current = false;
    const outcomes: Record<string, number> = {};
    let tried = 0;
    let after: DeadLetterPage['next'] = null;
    const of = open;
    const tell = (state: Progress['state']): void =>
      setProgress({ tried, of: of === undefined ? of : Math.max(of, tried), outcomes: { ...outcomes }, state });
    try {
      tell('running');
      do {
        const { replayed, next }: ReplayResult = await runCommand<ReplayResult>('dead-letters', {
          action: 'replay_all',
          filter: chosen({ topic, reason, open: 'true' }),
          limit: AT_A_TIME,
          after: after ?? undefined,
        });
        for (const [outcome, count] of Object.entries(replayed)) {
          outcomes[outcome] = (outcomes[outcome] ?? 0) + count;
          tried += count;
        }
        after = next;
        tell('running');
      } while (after !== null && !stop.current && !gone.aborted);
      tell(after === null ? 'done' : 'stopped');
    } catch (failure) {
      tell('stopped');
      throw failure;
    } finally {
      if (!gone.aborted) onDone();
    }
  }

  if (topic === '') return html`<p class="quiet">Choose a topic to replay its letters.</p>`;
  return html`<div class="replay">
    <button type="button" class="primary" disabled=${isBusy || open === 0} onClick=${() => void run(replay)}>
      ${open === 0 ? 'Nothing to replay' : `Replay ${open?.toLocaleString('en') ?? 'all'} of ${topic}${reason === '' ? '' : `, ${reason}`}`}
    </button>
    ${
      isBusy &&
      html`<button
        type="button"
        onClick=${() => {
          stop.current = true;
        }}
      >
        Stop
      </button>`
    }
    ${
      progress !== undefined &&
      html`<div class="progress" role="status">
        <progress max=${Math.max(1, progress.of ?? progress.tried)} value=${progress.tried} aria-label="Replayed letters"></progress>
        <span>${progress.tried.toLocaleString('en')}${progress.of !== undefined && ` of ${progress.of.toLocaleString('en')}`} tried${progress.state !== 'running' && `, ${progress.state}`}: ${outcomeText(progress.outcomes)}</span
        >
      </div>`
    }
    ${error !== undefined && html`<${Failure} error=${error} />`}
  </div>`;
}
