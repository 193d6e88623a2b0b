import { hash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { findPackageJSON, stripTypeScriptTypes } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

/** A file of the page, ready to be sent. */
export interface Asset {
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
  readonly br: Buffer;
}

export interface Assets {
  /** a hash of all files, so a changed file has another address */
  readonly version: string;
  readonly index: Asset;
  /** by path below /console/<version>/ */
  readonly files: ReadonlyMap<string, Asset>;
}

const PAGE = fileURLToPath(new URL('page', import.meta.url));
/** The names that the page's modules import, and the file of the package that is served for each. */
const libraries = {
  preact: ['preact', 'dist/preact.mjs'],
  'preact/hooks': ['preact', 'hooks/dist/hooks.mjs'],
  htm: ['htm', 'dist/htm.mjs'],
  'htm/preact': ['htm', 'preact/index.mjs'],
  uplot: ['uplot', 'dist/uPlot.esm.js'],
} as const satisfies Readonly<Record<string, readonly [packageName: string, file: string]>>;
const JAVASCRIPT = 'text/javascript; charset=utf-8';
const CSS = 'text/css; charset=utf-8';
/** The types of the page's own files by extension. */
const types: Readonly<Record<string, string>> = { '.ts': JAVASCRIPT, '.css': CSS, '.svg': 'image/svg+xml' };

/**
 * Builds the page without a build step: TypeScript modules whose types Node strips, and libraries as their packages
 * ship them. It takes 80 ms of CPU or more, so the first request does it, not the start of the service.
 */
export function buildAssets(): Assets {
  const sources = new Map<string, { type: string; text: string }>();
  const own = readdirSync(PAGE, { recursive: true, encoding: 'utf8' })
    .filter((path) => extname(path) in types && !path.endsWith('.test.ts'))
    .sort()
    .map((path) => [path, join(PAGE, path)] as const);
  // wire.ts is shared with the service; without its types it is small
  for (const [path, file] of [...own, ['wire.ts', join(PAGE, '../wire.ts')] as const]) {
    const type = types[extname(path)]!;
    sources.set(path, { type, text: type === JAVASCRIPT ? withoutTypes(read(file)) : read(file) });
  }
  for (const [name, [packageName, file]] of Object.entries(libraries))
    sources.set(vendorPath(name), { type: JAVASCRIPT, text: withoutSourceMap(read(packageFile(packageName, file))) });
  sources.set('vendor/uplot.css', { type: CSS, text: read(packageFile('uplot', 'dist/uPlot.min.css')) });

  const page = read(join(PAGE, 'index.html'));
  const version = hash('sha256', JSON.stringify([...sources, page]), 'hex').slice(0, 16);
  const base = `/console/${version}/`;
  const files = new Map(
    [...sources].map(([path, { type, text }]) => [
      path,
      asset(type, type === JAVASCRIPT ? withAddresses(text, base) : text),
    ]),
  );
  const scripts = [...sources]
    .filter(([path, { type }]) => type === JAVASCRIPT && path !== 'main.ts')
    .map(([path]) => path);
  const preloads = scripts.map((path) => `<link rel="modulepreload" href="${base}${path}">`).join('\n');
  const index = page.replaceAll('{{base}}', base).replace('{{preloads}}', preloads);
  return { version, files, index: asset('text/html; charset=utf-8', index) };
}

const read = (file: string): string => readFileSync(file, 'utf8');
const vendorPath = (name: string): string => `vendor/${name.replace('/', '-')}.js`;

/** Returns the path of a file that the package need not export. */
function packageFile(packageName: string, file: string): string {
  return join(dirname(findPackageJSON(packageName, import.meta.url)!), file);
}

/**
 * Node prints that this is experimental, as a plain line on stderr, where logs are JSON. A browser test notices if it
 * changes.
 */
function stripped(source: string): string {
  const emitWarning = process.emitWarning.bind(process);
  process.emitWarning = () => undefined;
  try {
    return stripTypeScriptTypes(source);
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** Types become blanks, which cost nothing when compressed; so do comment lines. */
function withoutTypes(source: string): string {
  return stripped(source).replace(/^\s*(\/\/.*|\/\*\*[^]*?\*\/)\n/gm, '');
}

const withoutSourceMap = (source: string): string => source.replace(/^\/\/# sourceMappingURL=.*$/m, '');

/** Replaces names of libraries by addresses: an import map would have to be an inline script in the page. */
function withAddresses(source: string, base: string): string {
  return (
    source
      .replace(/(\bfrom\s*|\bimport\s*)(["'])([a-z/]+)\2/g, (whole, before: string, quote: string, name: string) =>
        name in libraries ? `${before}${quote}${base}${vendorPath(name)}${quote}` : whole,
      )
      // outside of the page's folder, but beside its modules when served
      .replace(/(["'])(?:\.\.\/)+wire\.ts\1/g, `"${base}wire.ts"`)
  );
}

function asset(type: string, text: string): Asset {
  const plain = Buffer.from(text);
  return {
    type,
    plain,
    gzip: gzipSync(plain, { level: 6 }),
    br: brotliCompressSync(plain, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 6, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length },
    }),
  };
}
