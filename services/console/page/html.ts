import { html as bound } from 'htm/preact';
import type { ComponentChildren } from 'preact';

/** What a component gives. Texts in it are texts: nothing that an event holds becomes markup. */
export type View = ComponentChildren;

/** Markup in the template, Preact elements out of it. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): View {
  return bound(strings, ...values);
}
