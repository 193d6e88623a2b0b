import { useEffect, useState } from 'preact/hooks';
import { isoMicros, pickedAt, timestamp, type Zone } from '../format.ts';
import { html, onValue, type View } from '../html.ts';
import type { Mistake } from '../api.ts';
import type { Endpoint, Parameter } from './specification.ts';

interface Props {
  readonly endpoint: Endpoint;
  readonly values: Readonly<Record<string, string>>;
  readonly zone: Zone;
  readonly isBusy: boolean;
  readonly mistakes: readonly Mistake[];
  readonly onAsk: (values: Readonly<Record<string, string>>) => void;
}

/** Shows a field for every parameter of an endpoint. */
export function Form({ endpoint, values, zone, isBusy, mistakes, onAsk }: Props): View {
  const [entered, setEntered] = useState(values);
  useEffect(() => setEntered(values), [endpoint.name, JSON.stringify(values)]);
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    onAsk(entered);
  };
  return html`<form class="form" onSubmit=${onSubmit}>
    ${endpoint.parameters.map(
      (p) =>
        html`<${Field}
          key=${`${endpoint.name} ${p.name}`}
          parameter=${p}
          zone=${zone}
          value=${entered[p.name] ?? ''}
          mistake=${mistakes.find((m) => m.parameter === p.name)?.message}
          onInput=${(value: string) => setEntered((before) => ({ ...before, [p.name]: value }))}
        />`,
    )}
    <div class="actions">
      <button type="submit" class="primary" disabled=${isBusy}>${isBusy ? 'Asking…' : 'Ask'}</button>
    </div>
  </form>`;
}

interface FieldProps {
  readonly parameter: Parameter;
  readonly value: string;
  readonly zone: Zone;
  readonly mistake: string | undefined;
  readonly onInput: (value: string) => void;
}

function Field({ parameter: p, value, zone, mistake, onInput }: FieldProps): View {
  const id = `parameter-${p.name}`;
  const common = {
    id: id,
    name: p.name,
    value,
    'aria-describedby': `${id}-note`,
    'aria-invalid': mistake === undefined ? undefined : 'true',
    required: p.isRequired,
  };
  return html`<div class=${`field ${p.isStatement ? 'wide' : ''}`}>
    <label for=${id}>${p.name}${p.isRequired && html`<span class="required"> required</span>`}</label>
    ${
      p.choices !== undefined
        ? html`<select ...${common} onChange=${onValue(onInput)}>
            ${(!p.isRequired || value === '') && html`<option value="">${p.standard === '' ? 'not given' : `${p.standard} (default)`}</option>`}
            ${[...new Set([...p.choices, ...(value === '' ? [] : [value])])].map((c) => html`<option value=${c} selected=${c === value}>${c}</option>`)}
          </select>`
        : p.isStatement
          ? html`<textarea ...${common} rows="4" spellcheck=${false} onInput=${onValue(onInput)}></textarea>`
          : html`<input
              ...${common}
              type="text"
              autocomplete="off"
              spellcheck=${false}
              placeholder=${p.example}
              onInput=${onValue(onInput)}
            />`
    }
    ${p.isTimestamp && html`<${Picker} id=${id} name=${p.name} value=${value} zone=${zone} onInput=${onInput} />`}
    <small id=${`${id}-note`}
      >${mistake === undefined ? p.description : html`<span class="bad">${mistake}</span>`}</small
    >
  </div>`;
}

interface PickerProps extends Pick<FieldProps, 'value' | 'zone' | 'onInput'> {
  readonly id: string;
  readonly name: string;
}

/** Chooses an instant in the zone of the page and shows it in both. */
function Picker({ id, name, value, zone, onInput }: PickerProps): View {
  const ms = value === '' ? Number.NaN : Date.parse(/Z|[+-]\d\d:?\d\d$/i.test(value) ? value : `${value}Z`);
  const chosen = Number.isNaN(ms) ? '' : timestamp(Math.floor(ms / 1000) * 1e6, zone).replace(' ', 'T');
  const pick = (picked: string): void => {
    const at = pickedAt(picked, zone);
    onInput(Number.isNaN(at) ? '' : isoMicros(at * 1000));
  };
  return html`<div class="picker">
    <input
      id=${`${id}-picker`}
      type="datetime-local"
      step="1"
      value=${chosen}
      aria-label=${`${name}: choose in ${zone === 'utc' ? 'UTC' : 'local time'}`}
      onChange=${onValue(pick)}
    />
    ${!Number.isNaN(ms) && html`<small>${timestamp(ms * 1000, 'utc')} UTC, ${timestamp(ms * 1000, 'local')} local</small>`}
  </div>`;
}
