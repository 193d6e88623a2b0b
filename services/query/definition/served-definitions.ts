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
 * StartError that lists every mistake. `onChange` is called with new definitions.
 */
export function serveDefinitions(
  folders: readonly string[],
  clickhouse: Reader,
  logger: Logger,
  onChange: (definitions: Definitions) => void,
) {
  let definitions = readDefinitions(folders);
  let areChecked = false;
  /** One reload at a time: files that were read first must not replace newer ones because their check took longer. */
  let reloading: Promise<void> = Promise.resolve();
  async function reloadNow(): Promise<void> {
    try {
      const next = readDefinitions(folders);
      refuseMistakes(await checkDefinitions(clickhouse, next.all));
      definitions = next;
      onChange(next);
      logger.info({ endpoints: next.all.map((d) => d.name) }, 'endpoints_reloaded');
    } catch (error) {
      logger.error({ err: error }, 'endpoints_reload_failed');
    }
  }
  return {
    current: (): Definitions => definitions,
    areChecked: (): boolean => areChecked,
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
          areChecked = true;
          return;
        } catch (error) {
          if (!(error instanceof ClickHouseError)) throw error;
          // ClickHouse was not reached, and will not be, such as if an isolated process cannot be started
          if (error.kind === 'fatal' && error.code === undefined) throw error;
          await sleep(RETRY_MS);
        }
      }
      await new Promise(() => {});
    },
    /** Reads the definitions again. Wrong ones are refused, and the old ones stay. */
    reload(): Promise<void> {
      reloading = reloading.then(reloadNow);
      return reloading;
    },
  };
}
