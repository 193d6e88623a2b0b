import type { AlertStatus } from '../../wire.ts';
import { sentence } from '../format.ts';
import { html, type View } from '../html.ts';

const words = { firing: 'fires', pending: 'is about to fire', ok: 'is fine', unknown: 'is not known here' } as const;
const tones = { firing: 'bad', pending: 'warn', ok: 'good', unknown: '' } as const;

/** The number of subjects shown: all that fit for a firing rule, else only the first. */
const shownOf = ({ state }: AlertStatus): number => (state === 'firing' ? 100 : 3);

/** Shows rules that fire or are pending, each with its section of the runbook, and the others in one line. */
export function Alerts({ alerts }: { readonly alerts: readonly AlertStatus[] }): View {
  const active = alerts.filter((a) => a.state === 'firing' || a.state === 'pending');
  const unknown = alerts.filter((a) => a.state === 'unknown');
  const fine = alerts.length - active.length - unknown.length;
  return html`<section class="alerts" aria-label="Alerts">
    ${active.map(
      (alert) =>
        html`<article key=${alert.alert} class=${`alert ${alert.state}`}>
          <header>
            <strong>${alert.alert}</strong
            ><span class=${`badge ${tones[alert.state]}`}>${words[alert.state]}</span
            ><span class="quiet">${alert.severity}</span>
          </header>
          <div>
            <p>${sentence(alert.rule)}</p>
            <ul>
              ${alert.subjects.slice(0, shownOf(alert)).map((s) => html`<li><b>${s.name}</b> ${s.value}${alert.state === 'firing' && s.state === 'pending' && ' (about to fire)'}</li>`)}${alert.subjects.length > shownOf(alert) && html`<li class="quiet">and ${alert.subjects.length - shownOf(alert)} more</li>`}
            </ul>
          </div>
          ${
            alert.runbook !== undefined &&
            html`<details open=${alert.state === 'firing'}>
              <summary>What to do</summary>
              <div class="todo">${markdown(alert.runbook)}</div>
            </details>`
          }
        </article>`,
    )}
    <details class="rules">
      <summary>
        ${active.length === 0 ? 'No alert fires.' : `${fine} other rules are fine.`}${unknown.length > 0 && ` ${unknown.length} are not known here.`}
      </summary>
      <ul>
        ${alerts.map((a) => html`<li><span class=${`badge ${tones[a.state]}`}>${words[a.state]}</span> <b>${a.alert}</b> ${a.rule}${a.reason !== undefined && html` <span class="quiet">${a.reason}</span>`}</li>`)}
      </ul>
    </details>
  </section>`;
}

/** Renders the runbook's Markdown as far as it is used there: lines, lists, code, and links as their texts. */
function markdown(text: string): View {
  return blocksOf(text).map(({ text: block, isCode }) => {
    if (isCode) return html`<pre tabindex="0">${block}</pre>`;
    return block.split('`').map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : part));
  });
}

/** Returns the fenced blocks of a text, which stand in its lists, and what is between them. A sentence is one line. */
export function blocksOf(text: string): { readonly text: string; readonly isCode: boolean }[] {
  return text.split(/^ *```\n?/m).map((block, i) => {
    if (i % 2 === 1) return { text: block.replaceAll(/^ {3}/gm, '').trimEnd(), isCode: true };
    const plain = block.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1');
    return { text: plain.replaceAll(/([^.:\n])\n(?!- |\d+\. |\n) */g, '$1 ').trim(), isCode: false };
  });
}
