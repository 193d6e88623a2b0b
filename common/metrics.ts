import { Registry, collectDefaultMetrics } from 'prom-client';

export { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Returns the one registry of a process. Every metric is named sluice_<service>_<what>_<unit>. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}
