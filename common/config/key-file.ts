import { join } from 'node:path';

/** Returns the file of the first admin key if API_KEY is not set. The query service writes it, commands read it. */
export function keyFile(dataDir: string): string {
  return join(dataDir, 'api-key');
}
