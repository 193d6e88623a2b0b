import { Counter, Gauge, Histogram, type Registry } from '../../common/metrics.ts';

/** Labels have few values: `endpoint` is a definition's name or `other`, never text from a caller. */
export function createQueryMetrics(
  registry: Registry,
  gauges: {
    cacheEntries: () => number;
    cacheBytes: () => number;
    queriesRunning: () => number;
    queriesWaiting: () => number;
    requestsInFlight: () => number;
    responseMemoryBytes: () => number;
  },
) {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(read());
      },
    });
  return {
    cacheEntries: gauge('sluice_query_cache_entries', 'Answers in the cache', gauges.cacheEntries),
    cacheBytes: gauge('sluice_query_cache_bytes', 'Bytes of the answers in the cache', gauges.cacheBytes),
    running: gauge('sluice_query_running', 'Queries running', gauges.queriesRunning),
    waiting: gauge('sluice_query_waiting', 'Queries waiting for a slot', gauges.queriesWaiting),
    inFlight: gauge('sluice_query_requests_in_flight', 'Requests in flight', gauges.requestsInFlight),
    responseMemoryBytes: gauge(
      'sluice_query_response_memory_bytes',
      'Bytes of large answers that callers have not read yet',
      gauges.responseMemoryBytes,
    ),
    requests: new Counter({
      name: 'sluice_query_requests_total',
      help: 'Requests answered',
      labelNames: ['endpoint', 'status', 'cache'],
      registers,
    }),
    seconds: new Histogram({
      name: 'sluice_query_duration_seconds',
      help: 'Time to answer a request',
      labelNames: ['endpoint', 'cache'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    queueSeconds: new Histogram({
      name: 'sluice_query_queue_seconds',
      help: 'Time a query waits for a slot',
      buckets: [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers,
    }),
    rowsRead: new Counter({
      name: 'sluice_query_read_rows_total',
      help: 'Rows that ClickHouse read',
      labelNames: ['endpoint'],
      registers,
    }),
    bytesRead: new Counter({
      name: 'sluice_query_read_bytes_total',
      help: 'Bytes that ClickHouse read',
      labelNames: ['endpoint'],
      registers,
    }),
    requeries: new Counter({
      name: 'sluice_query_requeries_total',
      help: 'Answers queried again in the background',
      labelNames: ['endpoint', 'outcome'],
      registers,
    }),
    failedAuthentications: new Counter({
      name: 'sluice_query_failed_authentications_total',
      help: 'Requests without a valid key',
      registers,
    }),
    blockedAddresses: new Counter({
      name: 'sluice_query_addresses_blocked_total',
      help: 'Addresses blocked for a minute after too many requests without a valid key',
      registers,
    }),
    blockedRequests: new Counter({
      name: 'sluice_query_blocked_requests_total',
      help: 'Requests of blocked addresses, whatever their key',
      registers,
    }),
  };
}
export type QueryMetrics = ReturnType<typeof createQueryMetrics>;
