import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../common/clock.ts';
import { readSettings } from '../common/config/settings.ts';
import { kafkaFromSettings } from '../common/kafka/from-settings.ts';
import { ensureTopics } from '../common/kafka/topics.ts';
import { runProcess } from '../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../common/logger.ts';
import { help, readOptions } from './options.ts';
import { createPace } from './pace.ts';
import { createSender } from './sender.ts';
import { createTraffic } from './traffic.ts';
import { createVisible, lookUntil, metricsOf, type Visible } from './visible.ts';

/** Events are made and sent this often, milliseconds. */
const TICK_MS = 50;
const PROGRESS_MS = 1_000;
/** At the end, what was acknowledged gets this long to become visible. A second ctrl-C ends that. */
const LAST_LOOK_MS = 3_000;

let logger: Logger | undefined;

await runProcess(
  () => logger,
  async (add, stopping) => {
    const options = readOptions(process.argv.slice(2), systemClock());
    if (options.help) {
      writeSync(1, help);
      process.exit(0);
    }
    const settings = readSettings();
    logger = createLogger(settings.LOG_LEVEL);
    const brokers = settings.KAFKA_BROKERS ?? [`127.0.0.1:${settings.KAFKA_PORT}`];
    const kafka = kafkaFromSettings(settings, brokers, 'sluice-demo', logger);
    await ensureTopics(kafka, Object.values(settings.KAFKA_TOPICS), settings.KAFKA_TOPIC_PARTITIONS, {
      ...(settings.KAFKA_BROKERS === undefined && { advice: 'run npm start first, or set KAFKA_BROKERS' }),
    });

    const producer = kafka.producer();
    await producer.connect();
    add({ name: 'producer', stop: () => producer.disconnect() });

    const look = createVisible(metricsOf(settings));
    let visible: Visible | undefined = await look();
    const sender = createSender(producer, settings.KAFKA_TOPICS, logger);
    const started = systemClock();
    add({
      name: 'sender',
      stop: async () => {
        await sender.settled();
        const { sent, acknowledged, failed } = sender.totals();
        visible = await lookUntil(look, acknowledged, LAST_LOOK_MS);
        progress('in all');
        if (options.json)
          writeSync(
            1,
            `${JSON.stringify({ sent, acknowledged, failed, seconds: (systemClock() - started) / 1000, seed: options.traffic.seed, sources: sender.bySource() })}\n`,
          );
      },
    });

    const traffic = createTraffic(options.traffic);
    process.stderr.write(
      `demo: ${options.rate} events/s of ${options.traffic.projects} projects to ${kafka.brokers.join(', ')}; busiest project ${traffic.population.project(0).ref}\n`,
    );
    const ended = run();
    add({ name: 'traffic', stop: () => ended, failed: ended });

    function progress(when: string): void {
      const { sent, acknowledged, failed } = sender.totals();
      process.stderr.write(
        `demo: ${when} ${sent} sent, ${acknowledged} acknowledged${failed > 0 ? `, ${failed} failed` : ''}${visible === undefined ? '' : `, ${visible.events} visible`}${visible?.freshnessSeconds === undefined ? '' : `, ${visible.freshnessSeconds.toFixed(1)} s old`}\n`,
      );
    }

    async function run(): Promise<void> {
      const pace = createPace(options.rate, options.curve, started);
      const until = options.durationSeconds === undefined ? Infinity : started + options.durationSeconds * 1000;
      let nextProgress = started + PROGRESS_MS;
      for (;;) {
        await sleep(TICK_MS, undefined, { signal: stopping }).catch(() => undefined);
        if (stopping.aborted) return;
        const now = Math.min(systemClock(), until);
        sender.send(pace.due(now, sender.room()).map((micros) => traffic.next(micros)));
        if (now >= nextProgress) {
          progress(`${Math.round((now - started) / 1000)} s`);
          nextProgress = now + PROGRESS_MS;
          void look().then((seen) => (visible = seen));
        }
        if (now >= until) {
          process.kill(process.pid, 'SIGTERM'); // the one way in which a process ends in order
          return;
        }
      }
    }
  },
);
