import { useState } from 'preact/hooks';
import { timestamp, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Copy, Empty, useFilter } from '../parts.ts';
import { Digits } from './json.ts';
import type { Row } from './series.ts';

/** An entry of logs.all, or of any endpoint with the same columns. */
export interface Entry {
  readonly id: string | null;
  readonly timestamp: number;
  readonly event_message: string;
  readonly metadata: unknown;
}

export function isEntries(rows: readonly Row[]): rows is readonly (Row & Entry)[] {
  const first = rows[0];
  return (
    first !== undefined && typeof first['timestamp'] === 'number' && 'event_message' in first && 'metadata' in first
  );
}

/** Shows entries that open into a tree, with a filter over the loaded ones. */
export function Events({
  entries,
  zone,
  next,
}: {
  readonly entries: readonly Entry[];
  readonly zone: Zone;
  readonly next: string | undefined;
}): View {
  const { shown, field } = useFilter('event-filter', 'Filter the loaded entries', entries, (e) => JSON.stringify(e));
  return html`${field}
    ${
      shown.length === 0
        ? html`<${Empty} title="No loaded entry holds this text." />`
        : html`<ol class="events">
            ${shown.map((e, i) => html`<li key=${`${e.timestamp} ${e.id} ${i}`}><${Event_} entry=${e} zone=${zone} /></li>`)}
          </ol>`
    }
    ${next !== undefined && html`<p><a class="button" href=${next}>Older entries</a></p>`}`;
}

function Event_({ entry, zone }: { readonly entry: Entry; readonly zone: Zone }): View {
  const [isOpen, setIsOpen] = useState(false);
  return html`<details open=${isOpen} onToggle=${(e: Event) => setIsOpen((e.currentTarget as HTMLDetailsElement).open)}>
    <summary>
      <time datetime=${new Date(entry.timestamp / 1000).toISOString()}>${timestamp(entry.timestamp, zone)}</time>
      <span class="message"
        >${entry.event_message === '' ? html`<span class="quiet">no message</span>` : entry.event_message}</span
      >
    </summary>
    ${
      isOpen &&
      html`<div class="tree">
        <div class="quiet">
          id ${entry.id ?? 'none'} <${Copy} text=${() => JSON.stringify(entry, null, 2)} label="Copy as JSON" />
        </div>
        <p class="whole">${entry.event_message}</p>
        <${Tree} name="metadata" value=${entry.metadata} depth=${0} />
      </div>`
    }
  </details>`;
}

const OPEN_DEPTH = 4;
const MAX_CHILDREN = 200;

/** Shows a JSON value. The content of an object or list is drawn when it is opened. */
export function Tree({
  name,
  value,
  depth,
}: {
  readonly name: string;
  readonly value: unknown;
  readonly depth: number;
}): View {
  const [isOpen, setIsOpen] = useState(depth < OPEN_DEPTH);
  if (value instanceof Digits)
    return html`<div class="leaf">
      <span class="name">${name}</span> <span class="value number">${value.source}</span>
    </div>`;
  if (typeof value !== 'object' || value === null) {
    const kind = value === null ? 'null' : typeof value;
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    // on one line: htm drops white space that has a line break
    return html`<div class="leaf"><span class="name">${name}</span> <span class=${`value ${kind}`}>${text}</span></div>`;
  }
  const children = Object.entries(value);
  const size = Array.isArray(value) ? `[${children.length}]` : `{${children.length}}`;
  if (children.length === 0)
    return html`<div class="leaf"><span class="name">${name}</span> <span class="value null">${size}</span></div>`;
  return html`<details
    class="node"
    open=${isOpen}
    onToggle=${(e: Event) => {
      e.stopPropagation();
      setIsOpen((e.currentTarget as HTMLDetailsElement).open);
    }}
  >
    <summary><span class="name">${name}</span> <span class="quiet">${size}</span></summary>
    ${
      isOpen &&
      html`<div class="children">
        ${children.slice(0, MAX_CHILDREN).map(([key, child]) => html`<${Tree} key=${key} name=${key} value=${child} depth=${depth + 1} />`)}
        ${children.length > MAX_CHILDREN && html`<div class="quiet">${children.length - MAX_CHILDREN} more: copy the entry as JSON to see them.</div>`}
      </div>`
    }
  </details>`;
}
