import { metricsIn, type Registry } from '../../common/metrics.ts';

/** Labels have few values: `source` is a source's name or `unknown`, never text from a caller. */
export function createPushMetrics(registry: Registry, heldBytes: () => number) {
  const { counter, gaugeOf, histogram } = metricsIn(registry);
  return {
    requests: counter('sluice_push_requests_total', 'Push requests answered, by status', 'source', 'status'),
    events: counter('sluice_push_events_total', 'Events that Kafka acknowledged', 'source'),
    bytes: counter('sluice_push_bytes_total', 'Bytes of bodies read, decompressed', 'source'),
    acknowledgeSeconds: histogram(
      'sluice_push_acknowledge_seconds',
      'Time from a body read to its acknowledgement by Kafka',
      [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    ),
    heldBytes: gaugeOf(
      'sluice_push_held_bytes',
      'Bytes of bodies and of events that Kafka has not acknowledged',
      heldBytes,
    ),
  };
}
