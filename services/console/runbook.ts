import { readFileSync } from 'node:fs';

const FILE = new URL('../../docs/runbook.md', import.meta.url);

/** The runbook's section of an alert, Markdown without its heading; undefined where there is none. */
export function createRunbook(
  read: () => string = () => readFileSync(FILE, 'utf8'),
): (alert: string) => string | undefined {
  let sections: ReadonlyMap<string, string> | undefined;
  return (alert) => {
    sections ??= new Map(
      [...read().matchAll(/^### (\w+)\n([^]*?)(?=^#|(?![^]))/gm)].map(([, name = '', text = '']) => [
        name,
        text.trim(),
      ]),
    );
    return sections.get(alert);
  };
}
