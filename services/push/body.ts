import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { ApiError } from '../../common/http/errors.ts';
import { eachElement, eachMember, isBlank, skipBlanks, unquoted, valueEnd } from '../../common/json-text.ts';
import { unzip, type Unpack } from '../../common/unzip.ts';

const inflate: Unpack = promisify(zlib.inflate);
const inflateRaw: Unpack = promisify(zlib.inflateRaw);

const encodings: Readonly<Record<string, Unpack>> = {
  gzip: promisify(zlib.gunzip),
  'x-gzip': promisify(zlib.gunzip),
  // zlib's format by RFC 9110; some senders omit its wrapper and send bare deflate data
  deflate: (data, options) => ((data[0]! & 0x0f) === 8 ? inflate : inflateRaw)(data, options),
  br: promisify(zlib.brotliDecompress),
  zstd: promisify(zlib.zstdDecompress),
};

/**
 * Returns the body without its Content-Encoding. Throws ApiError: 415 if the encoding is none of gzip, deflate, br and
 * zstd, 413 if the result exceeds maxBytes, 400 if the data is broken or goes on after its end.
 */
export async function decompressBody(body: Buffer, encoding: string | undefined, maxBytes: number): Promise<Buffer> {
  const name = encoding?.trim().toLowerCase() ?? '';
  if (name === '' || name === 'identity' || body.length === 0) return body;
  const unpack = Object.hasOwn(encodings, name) ? encodings[name] : undefined;
  if (unpack === undefined)
    throw new ApiError('unsupported_encoding', 'Content-Encoding may be gzip, deflate, br or zstd');
  const unpacked = await unzip(unpack, body, maxBytes).catch((error: unknown) => {
    throw new ApiError('invalid_request', `the body is not ${name}`, { cause: error });
  });
  if (unpacked === undefined)
    throw new ApiError('payload_too_large', `the body has more than ${maxBytes} bytes when decompressed`);
  // Node stops at the end of the first zstd frame, and at the end of deflate and br: events behind it would be lost
  if (unpacked.engine.bytesWritten < body.length)
    throw new ApiError('invalid_request', `the body goes on after the end of its ${name}`);
  return unpacked.buffer;
}

/**
 * Yields the texts of the events of a body. The content decides the form, not the Content-Type: a JSON list; an object
 * whose `batch` is a list and that has no ENVELOPE key; one object; else one JSON object per line. Throws ApiError
 * (400) if the body has none of these forms. The texts themselves are not checked.
 */
export function* eventTexts(body: Buffer): Generator<string, void> {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw new ApiError('invalid_request', 'the body is not UTF-8', { cause: error });
  }
  const at = skipBlanks(text, 0);
  if (at === text.length) throw new ApiError('invalid_request', 'the body is empty');
  const end = valueEnd(text, at);
  const alone = skipBlanks(text, end) === text.length;
  if (text[at] === '[') {
    // valueEnd stops at the end of a truncated element; only a closing bracket proves that the list is complete
    if (!alone || text[end - 1] !== ']') throw new ApiError('invalid_request', 'the body is not a JSON list');
    return yield* eachElement(text, at);
  }
  if (text[at] !== '{' || !alone) return yield* lines(text);
  const event = text.slice(at, end);
  const batch = batchOf(event);
  if (batch === undefined) return yield event;
  return yield* eachElement(batch);
}

/** Keys of which an event has at least one. Beside them `batch` is an unknown key, which is legal. */
const ENVELOPE = new Set(['project', 'metadata', 'timestamp', 'event_message', 'message', 'id']);

/**
 * Returns the list of a batch. Undefined if the object is an event; also if a key is no JSON text, because then the
 * event is refused. Throws ApiError (400) if events would be lost: behind a cut, in a second batch, or behind the list.
 */
function batchOf(object: string): string | undefined {
  const batches: string[] = [];
  let end = 0;
  try {
    for (const [key, value, to] of eachMember(object)) {
      const name = unquoted(key);
      if (ENVELOPE.has(name)) return undefined;
      if (name === 'batch') batches.push(value);
      end = to;
    }
  } catch {
    return undefined;
  }
  const [batch] = batches;
  if (batch?.startsWith('[') !== true) return undefined;
  let rest = skipBlanks(object, end);
  if (object[rest] === ',') rest = skipBlanks(object, rest + 1);
  const isWhole = batch.endsWith(']') && object.endsWith('}') && rest === object.length - 1;
  if (!isWhole || batches.length > 1)
    throw new ApiError('invalid_request', 'the body is not a JSON object with one batch');
  return batch;
}

function* lines(text: string): Generator<string, void> {
  for (let from = 0; from < text.length;) {
    const newline = text.indexOf('\n', from);
    const to = newline < 0 ? text.length : newline;
    let first = from;
    while (first < to && isBlank(text.charCodeAt(first))) first++;
    if (first < to) yield text.slice(first, text.charCodeAt(to - 1) === 0x0d ? to - 1 : to);
    from = to + 1;
  }
}
