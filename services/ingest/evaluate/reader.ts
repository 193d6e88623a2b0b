import { createEventReader, type EventReader } from '../../../common/evaluate/event.ts';
import { sourceOf, type SourceName } from '../../../common/sources.ts';

const readers = new Map<SourceName, EventReader>();

/** The one reader of a source: it keeps its buffers from event to event. */
export function readerOf(source: SourceName): EventReader {
  let reader = readers.get(source);
  if (reader === undefined) readers.set(source, (reader = createEventReader(sourceOf(source))));
  return reader;
}
