import { Counter, Gauge, Histogram, type Registry } from '../../common/metrics.ts';

/** Labels have few values: `source` is a source's name or `unknown`, never text from a caller. */
export function createPushMetrics(registry: Registry, heldBytes: () => number) {
  const registers = [registry];
  return {
    requests: new Counter({
      name: 'sluice_push_requests_total',
      help: 'Push requests answered, by status',
      labelNames: ['source', 'status'],
      registers,
    }),
    events: new Counter({
      name: 'sluice_push_events_total',
      help: 'Events that Kafka acknowledged',
      labelNames: ['source'],
      registers,
    }),
    bytes: new Counter({
      name: 'sluice_push_bytes_total',
      help: 'Bytes of bodies read, decompressed',
      labelNames: ['source'],
      registers,
    }),
    acknowledgeSeconds: new Histogram({
      name: 'sluice_push_acknowledge_seconds',
      help: 'Time from a body read to its acknowledgement by Kafka',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    heldBytes: new Gauge({
      name: 'sluice_push_held_bytes',
      help: 'Bytes of bodies and of events that Kafka has not acknowledged',
      registers,
      collect() {
        this.set(heldBytes());
      },
    }),
  };
}
