import { weighted } from '../random.ts';
import { isoMicros } from '../timestamps.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawLevel = weighted({ info: 92, warn: 4, error: 4 });
const drawMethod = weighted({ GET: 70, HEAD: 8, POST: 14, PUT: 4, DELETE: 4 });
const folders = ['avatars', 'products', 'attachments', 'exports', 'covers'];

/** One line of the object storage service, about 321 bytes; self-hosted producers send `context` as a list. */
export function storageLog(draft: Draft): string {
  const { random, project, population, micros } = draft;
  const level = draft.incident === 'outage' && random.chance(0.7) ? 'error' : drawLevel(random);
  const status = level === 'error' ? 500 : level === 'warn' ? 404 : 200;
  const request = `req-${random.hex(4)}`;
  const message = `"${drawMethod(random)} | ${status} | ${population.drawClient(random).ip} | ${request} | /object/${random.pick(folders)}/${random.hex(8)}.png"`;
  const context = `{"host":"storage-${random.hex(8)}","pid":${1 + random.below(40)}}`;
  if (draft.selfHosted) {
    return selfHostedEvent(
      draft,
      'supabase-storage',
      message,
      `{"context":[${context}],"level":"${level}","project":"${project.ref}","tenantId":"${project.ref}","timestamp":"${isoMicros(micros).slice(0, 23)}Z"}`,
      false,
    );
  }
  return platformEvent(
    draft,
    message,
    `{"project":"${project.ref}","tenantId":"${project.ref}","reqId":"${request}","level":"${level}","context":${context}}`,
    false,
  );
}
