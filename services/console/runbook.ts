import { readFileSync } from 'node:fs';

const FILE = new URL('../../docs/runbook.md', import.meta.url);
let sections: ReadonlyMap<string, string> | undefined;

/** Returns the runbook's section of an alert, in Markdown without its heading. Undefined if there is none. */
export function sectionOf(alert: string): string | undefined {
  sections ??= new Map(
    [...readFileSync(FILE, 'utf8').matchAll(/^### (\w+)\n([^]*?)(?=^#|(?![^]))/gm)].map(([, name = '', text = '']) => [
      name,
      text.trim(),
    ]),
  );
  return sections.get(alert);
}
