import type { SettingName, Settings } from '../config/settings.ts';
import { readServiceSettings } from '../config/start.ts';
import { createLogger, type Logger } from '../logger.ts';
import { createRegistry, type Registry } from '../metrics.ts';
import { runProcess, type Component } from './run.ts';

export interface ServiceContext<Needed extends SettingName> {
  readonly settings: Settings & { readonly [K in Needed]: NonNullable<Settings[K]> };
  readonly logger: Logger;
  readonly registry: Registry;
  /** Hands over a component as soon as it runs. */
  readonly add: (component: Component) => void;
  /** fires at SIGTERM, or when a component fails */
  readonly stopping: AbortSignal;
}

/** Runs a service by its settings; it cannot run without those in `needs`. `script`: `npm run <script>`, or `start`. */
export async function runService<Needed extends SettingName = never>(
  script: string,
  needs: readonly Needed[],
  start: (context: ServiceContext<Needed>) => Promise<void>,
): Promise<never> {
  let logger: Logger | undefined;
  return await runProcess(
    () => logger,
    async (add, stopping) => {
      const settings = readServiceSettings(script, needs);
      logger = createLogger(settings.LOG_LEVEL);
      await start({ settings, logger, registry: createRegistry(), add, stopping });
    },
  );
}
