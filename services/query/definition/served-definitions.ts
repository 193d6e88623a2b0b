import { setTimeout as sleep } from 'node:timers/promises';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { checkDefinition } from './check.ts';
import { readDefinitions, type Definitions } from './definition-files.ts';
import { describe } from './definition.ts';

const RETRY_MS = 1_000;

/** The definitions that are served, checked against ClickHouse and reloaded on demand. */
export interface ServedDefinitions {
  readonly current: () => Definitions;
  readonly areChecked: () => boolean;
  /** Checks the definitions once the schema exists and ClickHouse answers. Throws StartError for a mistake. */
  checkFirst(schema: Promise<unknown>, stopping: AbortSignal): Promise<void>;
  /** Reads the definitions again. Wrong ones are refused, and the old ones stay. */
  reload(): Promise<void>;
}

/** Reads the folders. Throws StartError that lists every mistake. `onReload` is called with new definitions. */
export function serveDefinitions({
  folders,
  clickhouse,
  logger,
  onReload,
}: {
  readonly folders: readonly string[];
  readonly clickhouse: Reader;
  readonly logger: Logger;
  readonly onReload: (definitions: Definitions) => void;
}): ServedDefinitions {
  let definitions = readDefinitions(folders);
  let areChecked = false;
  /** One reload at a time: files that were read first must not replace newer ones because their check took longer. */
  let reloading: Promise<void> = Promise.resolve();
  async function reloadNow(): Promise<void> {
    try {
      const next = readDefinitions(folders);
      await checkAll(clickhouse, next);
      definitions = next;
      onReload(next);
      logger.info({ endpoints: next.all.map((d) => d.name) }, 'endpoints_reloaded');
    } catch (error) {
      logger.error({ err: error }, 'endpoints_reload_failed');
    }
  }
  return {
    current: () => definitions,
    areChecked: () => areChecked,
    async checkFirst(schema, stopping) {
      await schema;
      while (!stopping.aborted) {
        try {
          await checkAll(clickhouse, definitions);
          areChecked = true;
          return;
        } catch (error) {
          if (!(error instanceof ClickHouseError)) throw error;
          await sleep(RETRY_MS);
        }
      }
      await new Promise(() => {});
    },
    reload() {
      reloading = reloading.then(reloadNow);
      return reloading;
    },
  };
}

/**
 * Throws StartError (exit code 78) that names file and line of every mistake, or ClickHouseError if the engine is
 * unavailable.
 */
async function checkAll(clickhouse: Reader, definitions: Definitions): Promise<void> {
  const mistakes = (await Promise.all(definitions.all.map((d) => checkDefinition(clickhouse, d)))).flat();
  if (mistakes.length > 0)
    throw new StartError(`the endpoint definitions have mistakes:\n${describe(mistakes)}`, {
      exitCode: EXIT_CONFIG,
    });
}
