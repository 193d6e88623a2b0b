import { useEffect, useMemo, useState } from 'preact/hooks';

/**
 * The reader's place as in the address: `#/explore/logs.all?project=p`. A link to it shows the same. It never contains
 * a key.
 */
export interface Place {
  /** `overview`, `explore`, `dead-letters`, `keys` */
  readonly page: string;
  /** the rest of the path: an endpoint's name */
  readonly item: string;
  readonly params: URLSearchParams;
}

export function readPlace(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [page = '', ...rest] = path.split('/');
  return {
    page: page === '' ? 'overview' : page,
    item: decoded(rest.join('/')),
    params: new URLSearchParams(query),
  };
}

/** Returns the text itself if it is no percent-encoding. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns the query of an address or a call. A parameter without a value is left out. */
export function queryOf(params: Readonly<Record<string, string>>): string {
  return new URLSearchParams(Object.entries(params).filter(([, value]) => value !== '')).toString();
}

export function addressOf(
  page: string,
  item = '',
  params: URLSearchParams | Readonly<Record<string, string>> = {},
): string {
  const query = params instanceof URLSearchParams ? params.toString() : queryOf(params);
  return `#/${page}${item === '' ? '' : `/${encodeURIComponent(item)}`}${query === '' ? '' : `?${query}`}`;
}

export function go(address: string): void {
  location.hash = address;
}

export function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const onChange = (): void => setHash(location.hash);
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return useMemo(() => readPlace(hash), [hash]);
}
