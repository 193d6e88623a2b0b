import { join } from 'node:path';

/**
 * Where the first admin key stands when API_KEY is not set: the query service keeps it there, commands find it there.
 */
export function keyFile(dataDir: string): string {
  return join(dataDir, 'api-key');
}
