import type { AnyRoute } from '../../../common/http/route.ts';
import type { Definition, Parameter } from '../definition/definition.ts';
import { TRUNCATED, documentedRoutes, sizeAndAge } from './openapi.ts';
import { rangeOf } from '../definition/params.ts';

const html = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** Escapes a text that may mark code by backticks. */
const prose = (text: string): string => html(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');

/**
 * Anybody may send any Host: only what needs no quotes in a shell is shown. `http` may be all that a proxy leaves of
 * HTTPS, and a key goes with the calls: it is shown for this machine only.
 */
const SHOWN = /^(?:https:\/\/(?:[\w.-]+|\[[\da-f:.]+\])|http:\/\/(?:localhost|127(?:\.\d+){3}|\[::1\]))(?::\d+)?$/i;
const shownAddress = (address: string): string => (SHOWN.test(address) ? address : 'https://...');

function parameterRow(p: Parameter): string {
  const notes = [
    p.required ? 'required' : 'optional',
    ...(p.values ? [`one of ${[...p.values, ...Object.keys(p.aliases)].join(', ')}`] : []),
    rangeOf(p) ?? [],
    ...(p.default !== undefined ? [`default ${p.default}`] : []),
  ];
  return `<tr><td><code>${html(p.name)}</code></td><td>${prose(p.description)}</td><td>${html(notes.flat().join('; '))}</td></tr>`;
}

function example(d: Definition): string {
  const query = new URLSearchParams(
    d.parameters
      .filter((p) => p.required)
      .map((p): [string, string] => [p.name, p.examples[0] ?? p.values?.[0] ?? '...']),
  );
  return `curl -H "X-API-KEY: $KEY" "$SLUICE/api/endpoints/${d.name}?${query.toString()}"`;
}

function section(d: Definition): string {
  return `<section id="${html(d.name)}"><h2>${html(d.name)}</h2><p>${prose(d.description)}</p>
<pre>${html(example(d))}</pre>
<p>Id <code>${html(d.id)}</code>. ${sizeAndAge(d)}</p>
<h3>Parameters</h3><table>${d.parameters.map(parameterRow).join('')}</table>
<h3>Columns</h3><table>${d.columns.map((c) => `<tr><td><code>${html(c.name)}</code></td><td>${prose(c.description)}</td></tr>`).join('')}</table></section>`;
}

/** Returns a readable page of what /openapi.json says, for a reader at `address`. It loads nothing from elsewhere. */
export function docsPage(
  definitions: readonly Definition[],
  { routes = [], address }: { readonly routes?: readonly AnyRoute[]; readonly address: string },
): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>sluice: endpoints</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}code,pre{font-family:ui-monospace,monospace;background:#f3f3f3}pre{padding:.7rem;overflow:auto}table{border-collapse:collapse;width:100%}td{border-top:1px solid #ddd;padding:.3rem .6rem .3rem 0;vertical-align:top}section{margin-top:3rem}</style></head><body>
<h1>Endpoints</h1>
<p>Send your key as <code>X-API-KEY</code>, as <code>Authorization: Bearer</code>, or as <code>?api_key=</code>. Every parameter is a string. An answer is <code>{"result":[...]}</code>, a mistake <code>{"error":{...}}</code>. With <code>Accept: application/x-ndjson</code> it is a row a line, and with <code>Accept: text/csv</code> CSV, unless a column is nested.</p>
<p><code>x-result-truncated</code> is ${prose(TRUNCATED)}. <code>x-ignored-parameters</code> names what the endpoint does not take. Machines read <a href="/openapi.json">/openapi.json</a>.</p>
<p>The calls below take address and key from the shell:</p><pre>SLUICE=${html(shownAddress(address))} KEY=...</pre>
<ul>${definitions.map((d) => `<li><a href="#${html(d.name)}">${html(d.name)}</a></li>`).join('')}</ul>
${definitions.map(section).join('\n')}
${documentedRoutes(routes)
  .map(
    ({ path, method, operation }) =>
      `<section><h2>${html(method)} ${html(path)}</h2><p>${prose(operation.summary)}</p><p>${prose(operation.description)}</p></section>`,
  )
  .join('\n')}
</body></html>`;
}
