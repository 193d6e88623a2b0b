import { readdirSync, readFileSync } from 'node:fs';
import { valuesOf } from '../demo/visible.ts';
import { startSluice, type RunningSluice } from '../test/harness/service.ts';
import type { BenchBroker } from './backlog.ts';

export const API_KEY = 'bench';

/** `npm start` against this broker. */
export function startService(
  { brokers, folder }: BenchBroker,
  topics: string,
  more: Readonly<Record<string, string>> = {},
): Promise<RunningSluice> {
  return startSluice({
    DATA_DIR: folder,
    KAFKA_BROKERS: brokers.join(','),
    KAFKA_TOPICS: topics,
    PORT: '0',
    API_KEY,
    LOG_LEVEL: 'error',
    ...more,
  });
}

/** What /metrics says now: the sum of a metric over its labels. */
export async function scrape(address: string): Promise<(metric: string) => number> {
  const text = await (await fetch(`${address}/metrics`)).text();
  return (metric) => valuesOf(text, metric).reduce((total, value) => total + value, 0);
}

/** Events in the ledger of the topics that the service reads, from their first on. */
export async function position(address: string): Promise<number> {
  return (await scrape(address))('sluice_ingest_position_offset');
}

/** Returns the CPU of this process since then, milliseconds. */
export function cpuMs(since?: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1_000;
}

/** of /proc/<pid>/stat: fixed in Linux */
const TICKS_PER_SECOND = 100;

/** CPU time of a process and its children so far, seconds. */
export function cpuSeconds(pid: number): number {
  return ownCpuSeconds(pid) + childrenOf(pid).reduce((sum, child) => sum + cpuSeconds(child), 0);
}

/** CPU time of a process without its children so far, seconds. */
export function ownCpuSeconds(pid: number): number {
  const [user, system] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ').slice(11, 13).map(Number);
  return (user! + system!) / TICKS_PER_SECOND;
}

/** Resident memory of a process, megabytes: now, how much of it is mapped from files, and the most it ever was. */
export function residentOf(pid: number): { total: number; files: number; most: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const megabytes = (name: string): number =>
    Math.round((Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) * 1024) / 1e6);
  return { total: megabytes('VmRSS'), files: megabytes('RssFile'), most: megabytes('VmHWM') };
}

/** The service under npm. */
export function serviceOf(npm: number): number {
  return childrenOf(npm)[0]!;
}

function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8')
      .split(' ')
      .filter((text) => text !== '')
      .map(Number),
  );
}
