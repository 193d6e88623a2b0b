import { html as bound } from 'htm/preact';
import type { ComponentChildren } from 'preact';

/** The result of a component. Texts stay texts: no content of an event becomes markup. */
export type View = ComponentChildren;

/** Turns a template with markup into Preact elements. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): View {
  return bound(strings, ...values);
}

/** Returns a handler that passes on what was entered or chosen. */
export function onValue(use: (value: string) => void): (event: Event) => void {
  return (event) => use((event.target as HTMLInputElement | HTMLSelectElement).value);
}
