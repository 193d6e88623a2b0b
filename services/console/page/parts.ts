import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { CallError } from './api.ts';
import { sentence } from './format.ts';
import { html, onValue, type View } from './html.ts';

/** Shows what went wrong, every wrong parameter, and the request's id for the log. */
export function Failure({ error }: { readonly error: unknown }): View {
  const known = error instanceof CallError ? error : undefined;
  const message = known?.message ?? 'Something went wrong in this page. Reload it.';
  return html`<div class="failure" role="alert">
    <strong>${sentence(message)}</strong>
    ${
      known !== undefined &&
      known.mistakes.length > 0 &&
      html`<ul>
        ${known.mistakes.map((m) => html`<li>${m.parameter !== undefined && html`<code>${m.parameter}</code> `}${m.message}</li>`)}
      </ul>`
    }
    ${known !== undefined && known.status > 0 && html`<p class="quiet">Status ${known.status}, ${known.code}${known.requestId !== undefined && `, request ${known.requestId}`}</p>`}
  </div>`;
}

export function Empty({ title, children }: { readonly title: string; readonly children?: View }): View {
  return html`<div class="empty"><strong>${title}</strong>${children !== undefined && html`<p>${children}</p>`}</div>`;
}

/** Shows a button that copies a text, which is made on the click. */
export function Copy({ text, label }: { readonly text: () => string; readonly label: string }): View {
  const [state, setState] = useState(label);
  const onClick = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      setState('Copied');
    } catch {
      setState('Select the text and copy it');
    }
    window.setTimeout(() => setState(label), 2000);
  };
  return html`<button type="button" class="small" onClick=${() => void onClick()}>${state}</button>`;
}

export interface Column<T> {
  readonly name: string;
  readonly cell: (row: T) => View;
  readonly isNumber?: boolean;
}

const PAGE_ROWS = 50;

/** Shows rows a page at a time, so ten thousand cost as little as fifty. */
export function Table<T>({
  label,
  columns,
  rows,
  rowKey,
}: {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly rowKey?: (row: T) => string;
}): View {
  const [asked, setAsked] = useState(0);
  const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
  const page = Math.min(asked, pages - 1);
  const shown = rows.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}>
      <table>
        <thead>
          <tr>
            ${columns.map((c) => html`<th scope="col" class=${c.isNumber === true ? 'number' : ''}>${c.name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${shown.map(
            (row, i) =>
              html`<tr key=${rowKey?.(row) ?? i}>
                ${columns.map((c) => html`<td class=${c.isNumber === true ? 'number' : ''}>${c.cell(row)}</td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${
      pages > 1 &&
      html`<nav class="pager" aria-label=${`Pages of ${label}`}>
        <button type="button" class="small" disabled=${page === 0} onClick=${() => setAsked(page - 1)}>Previous</button>
        <span>${page * PAGE_ROWS + 1}–${page * PAGE_ROWS + shown.length} of ${rows.length.toLocaleString('en')}</span>
        <button type="button" class="small" disabled=${page === pages - 1} onClick=${() => setAsked(page + 1)}>
          Next
        </button>
      </nav>`
    }`;
}

interface TextFieldProps {
  readonly id: string;
  readonly label: string;
  readonly onText: (text: string) => void;
  readonly children?: View;
  /** of the input */
  readonly [attribute: string]: unknown;
}

/** Shows a field with its label above it, and what else belongs to it below. */
export function TextField({ id, label, onText, children, ...attributes }: TextFieldProps): View {
  return html`<div class="field">
    <label for=${id}>${label}</label><input id=${id} ...${attributes} onInput=${onValue(onText)} />${children}
  </div>`;
}

/** Returns the items that hold an entered text, and the field to enter it. */
export function useFilter<T>(
  id: string,
  label: string,
  items: readonly T[],
  textOf: (item: T) => string,
): { readonly shown: readonly T[]; readonly field: View } {
  const [filter, setFilter] = useState('');
  const wanted = filter.trim().toLowerCase();
  const shown = wanted === '' ? items : items.filter((item) => textOf(item).toLowerCase().includes(wanted));
  const field = html`<div class="filter">
    <label for=${id}>${label}</label><input id=${id} type="search" value=${filter} onInput=${onValue(setFilter)} />
    <span class="quiet" aria-live="polite"
      >${shown.length.toLocaleString('en')} of ${items.length.toLocaleString('en')}</span
    >
  </div>`;
  return { shown, field };
}

/** Shows a dialog over the page. Escape or a click beside it closes it, unless only its button may. */
export function Dialog({
  title,
  isKept = false,
  onClose,
  children,
}: {
  readonly title: string;
  readonly isKept?: boolean;
  readonly onClose: () => void;
  readonly children: View;
}): View {
  const element = useRef<HTMLDialogElement>(null);
  // its end runs before the element is removed: removing an open dialog would not give the focus back
  useLayoutEffect(() => {
    const shown = element.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  // a browser that does not know closedby closes on Escape all the same
  const onCancel = (event: Event): void => {
    if (isKept) event.preventDefault();
  };
  return html`<dialog
    ref=${element}
    aria-label=${title}
    closedby=${isKept ? 'none' : 'any'}
    onClose=${onClose}
    onCancel=${onCancel}
  >
    <div class="dialog">
      <header>
        <h2>${title}</h2>
        <button type="button" class="small" onClick=${onClose}>Close</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * Runs one call at a time and keeps what went wrong. The signal ends when another call begins or the component is gone.
 */
export function useWork(): {
  readonly isBusy: boolean;
  readonly error: unknown;
  readonly run: (work: (signal: AbortSignal) => Promise<void>) => Promise<void>;
} {
  const [state, setState] = useState<{ isBusy: boolean; error: unknown }>({ isBusy: false, error: undefined });
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  return {
    ...state,
    run: async (work) => {
      running.current?.abort();
      const { signal } = (running.current = new AbortController());
      setState({ isBusy: true, error: undefined });
      const error: unknown = await work(signal).then(
        () => undefined,
        (failure: unknown) => failure,
      );
      if (!signal.aborted) setState({ isBusy: false, error });
    },
  };
}
