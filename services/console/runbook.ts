import { readFileSync } from 'node:fs';

const FILE = new URL('../../docs/runbook.md', import.meta.url);

/** Returns the runbook's section of an alert, in Markdown without its heading. Undefined if there is none. */
export function createRunbook(): (alert: string) => string | undefined {
  let sections: ReadonlyMap<string, string> | undefined;
  return (alert) => {
    sections ??= new Map(
      [...readFileSync(FILE, 'utf8').matchAll(/^### (\w+)\n([^]*?)(?=^#|(?![^]))/gm)].map(
        ([, name = '', text = '']) => [name, text.trim()],
      ),
    );
    return sections.get(alert);
  };
}
