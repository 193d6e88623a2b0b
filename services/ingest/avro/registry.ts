import { parseSchema, type Schema } from './schemas.ts';

/** What the registry says of an id: a schema, or why there is none that can be used. */
export type Lookup = { readonly schema: Schema } | { readonly detail: string };

/** The registry does not answer, or not with what it should: the same question may be answered later. */
export class RegistryError extends Error {
  readonly kind = 'retry';
}

export interface RegistryOptions {
  /** http(s)://user:password@host:port/path; what the Confluent API serves below it */
  readonly url: string;
  readonly onLookup: (outcome: 'found' | 'refused' | 'failed') => void;
  /** milliseconds */
  readonly monotonic?: () => number;
}

/**
 * An id that the registry does not know may be registered later: it is asked again after a second, then after twice as
 * long each time, milliseconds. A replica of the registry learns a moment later of what a producer has registered.
 */
const REFUSED_FIRST_MS = 1_000;
const REFUSED_MAX_MS = 30_000;
/** Bytes that only look like a message with an id must not fill the memory. */
const MAX_REFUSED = 10_000;
const TIMEOUT_MS = 10_000;
/** Far above any schema; without a limit, one answer could fill the memory. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
/** What messages show of an answer without a schema, unless it is longer than the text of an error. */
const SHOWN = /^.{1,100}/u;
const LONGEST_ERROR_TEXT = 1_000;

/**
 * Client of a schema registry with Confluent's API (GET /schemas/ids/{id}). What is found is kept for good: an id never
 * changes its schema.
 * https://docs.confluent.io/platform/current/schema-registry/develop/api.html#get--schemas-ids-int-%20id
 */
export function createRegistry({ url, onLookup, monotonic = () => performance.now() }: RegistryOptions) {
  const base = new URL(url);
  const headers: Record<string, string> = { accept: 'application/vnd.schemaregistry.v1+json, application/json' };
  if (base.username !== '') {
    const credentials = `${decodeURIComponent(base.username)}:${decodeURIComponent(base.password)}`;
    headers['authorization'] = `Basic ${Buffer.from(credentials).toString('base64')}`;
  }
  base.username = '';
  base.password = '';
  const where = base.href.replace(/\/+$/, '');

  const found = new Map<number, Lookup>();
  const refused = new Map<number, { readonly detail: string; readonly forMs: number; readonly until: number }>();
  const asked = new Map<number, Promise<Lookup>>();

  return {
    /** What is known without asking; outdated refusals too. */
    known: (id: number): Lookup | undefined => found.get(id) ?? refused.get(id),

    /** Returns whether a lookup is answered without asking. */
    keeps: (id: number): boolean => kept(id) !== undefined,

    /** Asks at most once for what it knows, and for the same id once at a time. Throws RegistryError. */
    async lookup(id: number): Promise<Lookup> {
      const answered = kept(id);
      if (answered !== undefined) return answered;
      const answer = asked.get(id) ?? ask(id).finally(() => asked.delete(id));
      asked.set(id, answer);
      return answer;
    },
  };

  function kept(id: number): Lookup | undefined {
    const refusal = refused.get(id);
    return found.get(id) ?? (refusal !== undefined && refusal.until > monotonic() ? refusal : undefined);
  }

  async function ask(id: number): Promise<Lookup> {
    try {
      const lookup = await request(id);
      onLookup('schema' in lookup ? 'found' : 'refused');
      return lookup;
    } catch (error) {
      onLookup('failed');
      throw error;
    }
  }

  async function request(id: number): Promise<Lookup> {
    const { status, body } = await fetch(`${where}/schemas/ids/${id}`, {
      headers,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    })
      .then(async (response) => ({ status: response.status, body: await bodyOf(response) }))
      .catch((error: unknown) => {
        throw new RegistryError(`the schema registry ${where} does not answer: ${reasonOf(error)}`, { cause: error });
      });
    if (body === undefined)
      throw new RegistryError(
        `the schema registry ${where} returned more than ${MAX_ANSWER_BYTES} bytes for schema id ${id}`,
      );
    const answer = parseAnswer(body);
    if (status === 404 && isRefusal(answer)) {
      const before = refused.get(id);
      if (before === undefined && refused.size >= MAX_REFUSED) refused.clear();
      const forMs = before === undefined ? REFUSED_FIRST_MS : Math.min(before.forMs * 2, REFUSED_MAX_MS);
      const refusal = { detail: `schema id ${id} is not in the registry`, forMs, until: monotonic() + forMs };
      refused.set(id, refusal);
      return refusal;
    }
    if (status !== 200 || typeof answer.schema !== 'string')
      throw new RegistryError(
        `the schema registry ${where} returned HTTP ${status}${status === 200 ? ' without a schema' : ''} ` +
          `for schema id ${id}${shown(body)}`,
      );
    const lookup = lookupOf(id, answer.schema, answer);
    found.set(id, lookup);
    return lookup;
  }
}

export type Registry = ReturnType<typeof createRegistry>;

interface Answer {
  readonly schema?: unknown;
  readonly schemaType?: unknown;
  readonly references?: unknown;
  readonly error_code?: unknown;
}

/** Returns the text of an answer; undefined if it is too large. */
async function bodyOf({ body }: Response): Promise<string | undefined> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body ?? []) {
    bytes += piece.length;
    // leaving the loop ends the request
    if (bytes > MAX_ANSWER_BYTES) return undefined;
    pieces.push(piece);
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
}

/** Returns an answer without any property if the text is not a JSON object. */
function parseAnswer(body: string): Answer {
  try {
    return (JSON.parse(body) as Answer | null) ?? {};
  } catch {
    return {};
  }
}

/**
 * Only these codes say that the registry does not have the id: Confluent, Karapace and Redpanda answer 40403, Apicurio
 * 40403 or 40401. Proxies, and a registry that is asked below a wrong path, answer 404 without one.
 */
function isRefusal({ error_code: code }: Answer): boolean {
  return Number.isInteger(code) && (code as number) >= 40_401 && (code as number) <= 40_499;
}

/** Returns the beginning of a body behind a colon, if it is a short text. */
function shown(body: string): string {
  if (body.length > LONGEST_ERROR_TEXT || body.includes('\ufffd')) return '';
  const text = SHOWN.exec(body.replaceAll(/[\p{C}\s]+/gu, ' ').trim());
  return text === null ? '' : `: ${text[0]}`;
}

/** Without a schemaType it is Avro. Some registries answer null for what is absent. */
function lookupOf(id: number, schema: string, answer: Answer): Lookup {
  const type: unknown = answer.schemaType ?? 'AVRO';
  const references = answer.references ?? [];
  if (type !== 'AVRO') return { detail: `schema id ${id} is of type ${String(type)}` };
  if (!Array.isArray(references) || references.length > 0)
    return { detail: `schema id ${id} refers to other schemas, which is not supported: register it with them in one` };
  try {
    return { schema: parseSchema(schema) };
  } catch (error) {
    return { detail: `schema id ${id} cannot be parsed: ${error instanceof Error ? error.message : String(error)}` };
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(cause instanceof Error)) return String(cause);
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.message;
}
