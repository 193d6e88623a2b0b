import { setTimeout as sleep } from 'node:timers/promises';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { checkDefinitions } from './check.ts';
import { readDefinitions, type Definitions } from './definition-files.ts';
import { refuseMistakes } from './definition.ts';

const RETRY_MS = 1_000;

/**
 * Keeps the definitions that are served, checked against ClickHouse and reloaded on demand. Reads the folders. Throws
 * StartError that lists every mistake.
 */
export function serveDefinitions(folders: readonly string[], clickhouse: Reader, logger: Logger) {
  let definitions = readDefinitions(folders);
  let problem: string | undefined = 'are not checked yet';
  /** One reload at a time: files that were read first must not replace newer ones because their check took longer. */
  let reloading: Promise<void> = Promise.resolve();
  async function reloadNow(): Promise<void> {
    try {
      const next = readDefinitions(folders);
      refuseMistakes(await checkDefinitions(clickhouse, next.all));
      definitions = next;
      logger.info({ endpoints: next.all.map((d) => d.name) }, 'endpoints_reloaded');
    } catch (error) {
      logger.error({ err: error }, 'endpoints_reload_failed');
    }
  }
  return {
    current: (): Definitions => definitions,
    /** Undefined once the definitions are checked, else what is wrong. Anybody may read it: no text of ClickHouse. */
    check: async (): Promise<string | undefined> => problem,
    /** Checks the definitions once the schema exists and ClickHouse answers. Throws StartError for a mistake. */
    async checkFirst(schema: Promise<unknown>, stopping: AbortSignal): Promise<void> {
      try {
        await schema;
      } catch (error) {
        // a start that fails elsewhere closes ClickHouse under the migration
        if (!stopping.aborted) throw error;
      }
      while (!stopping.aborted) {
        try {
          refuseMistakes(await checkDefinitions(clickhouse, definitions.all));
          problem = undefined;
          return;
        } catch (error) {
          if (!(error instanceof ClickHouseError)) throw error;
          // ClickHouse was not reached, and will not be, such as if an isolated process cannot be started
          if (error.kind === 'fatal' && error.code === undefined) throw error;
          const before = problem;
          problem = `are not checked yet (${error.codeName})`;
          if (stopping.aborted) break;
          if (problem !== before) logger.warn({ reason: error.message }, 'endpoints_check_failed');
          await sleep(RETRY_MS);
        }
      }
      // the service stops: neither checked nor wrong
      await new Promise(() => {});
    },
    /** Reads the definitions again. Wrong ones are refused, and the old ones stay. */
    reload: (): Promise<void> => (reloading = reloading.then(reloadNow)),
  };
}
