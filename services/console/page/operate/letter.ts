import { useEffect, useMemo, useState } from 'preact/hooks';
import type { DeadLetterBytes, DeadLetterRow, ReplayResult } from '../../wire.ts';
import { runCommand } from '../api.ts';
import { bytes, instant, outcomeText, type Zone } from '../format.ts';
import { html, type View } from '../html.ts';
import { Copy, Dialog, Failure, useWork } from '../parts.ts';
import { hexDump, textOf } from './octets.ts';

interface Props {
  readonly letter: DeadLetterRow;
  readonly zone: Zone;
  readonly onClose: () => void;
  readonly onReplayed: () => void;
}

/** Shows one dead letter with everything that Kafka had of it. */
export function Letter({ letter, zone, onClose, onReplayed }: Props): View {
  const { topic, incarnation, partition, offset } = letter;
  const [content, setContent] = useState<DeadLetterBytes | undefined>(undefined);
  const [outcome, setOutcome] = useState<string | undefined>(undefined);
  const loading = useWork();
  const replaying = useWork();
  const at = { topic, incarnation, partition, offset: String(offset) };
  useEffect(() => {
    void loading.run(async (signal) =>
      setContent(await runCommand<DeadLetterBytes>('dead-letters', { action: 'show', at }, signal)),
    );
  }, [topic, incarnation, partition, offset]);
  const replay = (): Promise<void> =>
    replaying.run(async () => {
      const { replayed } = await runCommand<ReplayResult>('dead-letters', { action: 'replay', at });
      setOutcome(outcomeText(replayed));
      onReplayed();
    });
  return html`<${Dialog} title=${`${topic}, partition ${partition}, offset ${offset}`} onClose=${onClose}>
    <dl class="properties">
      <dt>Reason</dt>
      <dd><code>${letter.reason}</code> ${letter.detail}</dd>
      <dt>Replayed</dt>
      <dd>${letter.replayed_at === null ? 'no' : instant(letter.replayed_at, zone)}</dd>
      ${
        content !== undefined &&
        html`<dt>Kafka's time</dt>
          <dd>${content.record_time === null ? 'none' : instant(content.record_time, zone)}</dd>
          <dt>Key</dt>
          <dd>
            ${content.key_base64 === null ? html`<span class="quiet">none</span>` : html`<code><${Short} base64=${content.key_base64} /></code>`}
          </dd>
          <dt>Headers</dt>
          <dd>
            ${
              content.headers.length === 0
                ? html`<span class="quiet">none</span>`
                : html`<ul>
                    ${content.headers.map((h) => html`<li><code>${h.name}</code> ${h.value_base64 === null ? 'null' : html`<${Short} base64=${h.value_base64} />`}</li>`)}
                  </ul>`
            }
          </dd>`
      }
    </dl>
    ${loading.error !== undefined && html`<${Failure} error=${loading.error} />`}
    ${content !== undefined && html`<${Value} base64=${content.value_base64} />`}
    <div class="actions">
      <button
        type="button"
        class="primary"
        disabled=${replaying.isBusy || letter.replayed_at !== null || outcome !== undefined}
        onClick=${() => void replay()}
      >
        ${replaying.isBusy ? 'Replaying…' : 'Replay'}
      </button>
      ${outcome !== undefined && html`<span role="status">Result: ${outcome}.</span>`}
    </div>
    ${replaying.error !== undefined && html`<${Failure} error=${replaying.error} />`}
  <//>`;
}

const decode = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

// The page is drawn every second, and a letter may have megabytes: they are decoded once.

/** Shows the text of bytes, else their first 64 in hexadecimal. */
function Short({ base64 }: { readonly base64: string }): View {
  return useMemo(() => {
    const octets = decode(base64);
    return textOf(octets) ?? hexDump(octets.subarray(0, 64));
  }, [base64]);
}

const SHOWN_BYTES = 16 * 1024;

function Value({ base64 }: { readonly base64: string }): View {
  const { octets, text, dump } = useMemo(() => {
    const all = decode(base64);
    return { octets: all, text: textOf(all), dump: hexDump(all.subarray(0, SHOWN_BYTES)) };
  }, [base64]);
  const [wantsHex, setWantsHex] = useState(false);
  const shown = wantsHex ? undefined : text;
  return html`<div class="value">
    <header>
      <b>Value</b> <span class="quiet">${bytes(octets.length)}</span>
      <button
        type="button"
        class="small"
        aria-pressed=${shown !== undefined}
        disabled=${text === undefined}
        onClick=${() => setWantsHex(false)}
      >
        Text</button
      ><button type="button" class="small" aria-pressed=${shown === undefined} onClick=${() => setWantsHex(true)}>Hex</button>
      <${Copy} text=${() => shown ?? hexDump(octets)} label="Copy" />
    </header>
    ${octets.length === 0 ? html`<p class="quiet">The value is empty.</p>` : html`<pre tabindex="0">${shown?.slice(0, SHOWN_BYTES) ?? dump}</pre>`}
    ${octets.length > SHOWN_BYTES && html`<p class="quiet">The first ${bytes(SHOWN_BYTES)}. Copy takes all of it.</p>`}
  </div>`;
}
