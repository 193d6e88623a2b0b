import { join } from 'node:path';
import { readSettings } from '../../common/config/settings.ts';

/**
 * Environment of the Node processes that tests start. Node keeps the modules that it has compiled in this folder. The
 * next process then loads the services with 0.2 s of CPU instead of 0.6 s.
 */
export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(readSettings().CACHE_DIR, 'node-compile-cache') } as const;
