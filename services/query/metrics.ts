import { metricsIn, type Registry } from '../../common/metrics.ts';

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
  const { counter, gaugeOf, histogram } = metricsIn(registry);
  gaugeOf('sluice_query_cache_entries', 'Answers in the cache', gauges.cacheEntries);
  gaugeOf('sluice_query_cache_bytes', 'Bytes of the answers in the cache', gauges.cacheBytes);
  gaugeOf('sluice_query_running', 'Queries running', gauges.queriesRunning);
  gaugeOf('sluice_query_waiting', 'Queries waiting for a slot', gauges.queriesWaiting);
  gaugeOf('sluice_query_requests_in_flight', 'Requests in flight', gauges.requestsInFlight);
  gaugeOf(
    'sluice_query_response_memory_bytes',
    'Bytes that large answers have reserved, or hold until callers have read them',
    gauges.responseMemoryBytes,
  );
  return {
    requests: counter('sluice_query_requests_total', 'Requests answered', 'endpoint', 'status', 'cache'),
    seconds: histogram(
      'sluice_query_duration_seconds',
      'Time to answer a request',
      [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      'endpoint',
      'cache',
    ),
    queueSeconds: histogram(
      'sluice_query_queue_seconds',
      'Time a query waits for a slot',
      [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
    ),
    rowsRead: counter('sluice_query_read_rows_total', 'Rows that ClickHouse read', 'endpoint'),
    bytesRead: counter('sluice_query_read_bytes_total', 'Bytes that ClickHouse read', 'endpoint'),
    requeries: counter(
      'sluice_query_requeries_total',
      'Answers queried again in the background',
      'endpoint',
      'outcome',
    ),
    failedAuthentications: counter('sluice_query_failed_authentications_total', 'Requests without a valid key'),
    blockedAddresses: counter(
      'sluice_query_addresses_blocked_total',
      'Addresses blocked for a minute after too many requests without a valid key',
    ),
    blockedRequests: counter(
      'sluice_query_blocked_requests_total',
      'Requests of blocked addresses, whatever their key',
    ),
  };
}
export type QueryMetrics = ReturnType<typeof createQueryMetrics>;
