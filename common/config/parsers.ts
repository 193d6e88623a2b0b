import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { sources, type SourceName } from '../sources.ts';

// A parser gets trimmed, non-empty text and throws an Error whose message completes the sentence "NAME ...".

export const text = (value: string): string => value;

/** Makes a path absolute, because processes with another working folder get it. */
export const path = (value: string): string => resolve(value);

/** Takes the brackets off that an IPv6 address has in a URL. */
export const host = (value: string): string => value.replace(/^\[(.*)\]$/, '$1');

export function oneOf<const T extends string>(...values: T[]): (value: string) => T {
  return (value) => {
    const found = values.find((v) => v === value);
    if (found === undefined) throw new Error(`is ${JSON.stringify(value)}; use one of ${values.join(', ')}`);
    return found;
  };
}

/** `range` is for the documentation. */
export function integer(min: number, max: number): ((value: string) => number) & { readonly range: string } {
  const range = `${min} to ${max}`;
  const parse = (value: string): number => {
    const n = Number(value);
    if (!/^\d+$/.test(value) || n < min || n > max)
      throw new Error(`is ${JSON.stringify(value)}; use an integer from ${range}`);
    return n;
  };
  return Object.assign(parse, { range });
}

export function yesOrNo(value: string): boolean {
  return oneOf('true', 'false')(value) === 'true';
}

export function url(...protocols: string[]): (value: string) => string {
  return (value) => {
    const parsed = URL.parse(value);
    // localhost:8123 is a URL too: of the protocol localhost
    if (parsed === null || !value.includes('//'))
      throw new Error(`is not a URL; use for instance ${protocols[0]}://localhost`);
    try {
      decodeURIComponent([parsed.username, parsed.password, parsed.pathname].join('/'));
    } catch (error) {
      throw new Error('has a % that begins no escape; in a password it is written %25', { cause: error });
    }
    // A path that is appended would land in it. `search` does not show an empty query, as in http://host/?
    if (/[?#]/.test(value)) throw new Error('has a query or a fragment; in a password ? and # are written %3F and %23');
    if (!protocols.includes(parsed.protocol.slice(0, -1)))
      throw new Error(`has the protocol ${parsed.protocol.slice(0, -1)}; use ${protocols.join(' or ')}`);
    return value;
  };
}

/** A ClickHouse server; the path is the name of the database. */
export function server(value: string): string {
  const { pathname } = new URL(url('http', 'https')(value));
  if (pathname.includes('/', 1))
    throw new Error('has more than a database behind the host; use http://user:password@host:8123/database');
  return value;
}

/** A Redis server; the path is the number of a database. */
export function redis(value: string): string {
  const { pathname } = new URL(url('redis', 'rediss')(value));
  if (!/^(\/\d*)?$/.test(pathname))
    throw new Error('has more than the number of a database behind the host; use redis://host:6379/0');
  return value;
}

/** One server, or several nodes of a cluster with the same database. */
export function nodes(value: string): string {
  const urls = value.split(',').map((node) => node.trim());
  if (urls.slice(1).some((node) => !node.includes('//')))
    throw new Error('has no URL behind a comma; in a password a comma is written %2C');
  for (const node of urls) server(node);
  const hosts = urls.map((node) => new URL(node).host);
  const double = hosts.find((host, at) => hosts.indexOf(host) < at);
  if (double !== undefined) throw new Error(`names ${double} twice`);
  if (new Set(urls.map((node) => new URL(node).pathname)).size > 1)
    throw new Error('names several databases; the nodes of a cluster have one database in common');
  return urls.join(',');
}

export function brokers(value: string): string[] {
  const list = names(value);
  for (const b of list) {
    if (b.startsWith('['))
      throw new Error(`has ${JSON.stringify(b)}; the Kafka client takes no IPv6 address, use a host name`);
    const port = Number(/^[^:\s/]+:(\d{1,5})$/.exec(b)?.[1]);
    if (!(port >= 1 && port <= 65535)) throw new Error(`has ${JSON.stringify(b)}; use host:port,host:port`);
  }
  if (list.length === 0) throw new Error('names no broker; use host:port,host:port');
  return list;
}

/** One topic per source. A topic belongs to one source. */
export type Topics = Record<SourceName, string>;

export const defaultTopics = Object.fromEntries(sources.map((s) => [s.name, s.name])) as Topics;

export function topics(value: string): Topics {
  const result: Topics = { ...defaultTopics };
  const named = new Set<SourceName>();
  for (const pair of names(value)) {
    const [name, topic, ...rest] = pair.split('=').map((p) => p.trim());
    const source = sources.find((s) => s.name === name);
    if (source === undefined || rest.length > 0)
      throw new Error(
        `has ${JSON.stringify(pair)}; use source=topic with a source of ${sources.map((s) => s.name).join(', ')}`,
      );
    if (topic === undefined || !/^[A-Za-z0-9._-]{1,249}$/.test(topic) || topic === '.' || topic === '..')
      throw new Error(`has ${JSON.stringify(pair)}; a topic name has 1 to 249 of A-Z a-z 0-9 . _ -`);
    if (named.has(source.name)) throw new Error(`names ${source.name} twice`);
    named.add(source.name);
    result[source.name] = topic;
  }
  const seen = new Map<string, string>();
  for (const [source, topic] of Object.entries(result)) {
    const other = seen.get(topic);
    if (other !== undefined)
      throw new Error(`gives the topic ${topic} to both ${other} and ${source}; a topic belongs to one source`);
    seen.set(topic, source);
  }
  return result;
}

export function fileText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new Error(`names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`, { cause: error });
  }
}

/** Checks the file and returns its path. It is read again where it is used. */
function fileWith(what: string, check: (text: string) => unknown): (path: string) => string {
  return (path) => {
    const text = fileText(path);
    try {
      check(text);
    } catch (error) {
      throw new Error(`names a file that has no ${what}`, { cause: error });
    }
    return path;
  };
}

export const certificateFile = fileWith('certificate in PEM', (text) => new X509Certificate(text));
export const privateKeyFile = fileWith('private key in PEM without a passphrase', createPrivateKey);

export function folder(path: string): string {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new Error(`is ${JSON.stringify(path)}, which is not a folder`);
  return path;
}

/** A key that callers send in a header. Other characters would arrive changed, or not at all. */
export function headerText(value: string): string {
  if (!/^[\x20-\x7e]+$/.test(value)) throw new Error('has a non-ASCII character, which an HTTP header cannot carry');
  return value;
}

/**
 * Whose X-Forwarded-For is trusted: nobody's, that of the given number of proxies, or that of proxies in these
 * networks.
 */
export type TrustProxy = false | number | readonly string[];

const PROXIES = 'use how many proxies stand in front (1 to 99), or their networks (10.0.0.0/8,127.0.0.1)';

export function trustProxy(value: string): TrustProxy {
  if (value === 'false' || value === '0') return false;
  if (value === 'true') throw new Error(`is "true", which would let every caller choose its own address; ${PROXIES}`);
  if (/^[1-9]\d?$/.test(value)) return Number(value);
  const networks = names(value);
  for (const network of networks) {
    const [, address = '', bits = '1'] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(network) ?? [];
    const version = isIP(address);
    if (version === 0 || Number(bits) < 1 || Number(bits) > (version === 4 ? 32 : 128))
      throw new Error(`has ${JSON.stringify(network)}; ${PROXIES}`);
  }
  if (networks.length === 0) throw new Error(`names no network; ${PROXIES}`);
  return networks;
}

export function names(value: string): string[] {
  return value
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}
