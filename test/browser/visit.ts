import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { expect } from 'vitest';
import type { ChartElement } from '../../services/console/page/chart.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export interface Visit {
  readonly page: Page;
  /** what the page said on its console as an error, or threw; refused answers of the service apart */
  readonly errors: readonly string[];
  /** addresses of other hosts that were asked for */
  readonly outside: readonly string[];
  readonly close: () => Promise<void>;
}

export interface VisitOptions extends BrowserContextOptions {
  /** signed in with it from the start */
  readonly key?: string;
}

/** A browser session of its own. */
export async function visit(browser: Browser, address: string, { key, ...options }: VisitOptions = {}): Promise<Visit> {
  const context = await browser.newContext({
    locale: 'en-US',
    timezoneId: 'Europe/Berlin',
    viewport: { width: 1280, height: 900 },
    ...options,
  });
  context.setDefaultTimeout(20_000);
  if (key !== undefined) await context.addInitScript((text) => sessionStorage.setItem('sluice.key', text), key);
  const page = await context.newPage();
  const [errors, outside]: [string[], string[]] = [[], []];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      errors.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(new URL(address).origin)) outside.push(request.url());
  });
  return { page, errors, outside, close: () => context.close() };
}

/** Serious and critical faults that axe-core finds in the page as it is now. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // the page's own policy allows no script but its own: this one comes through the debugger
  await page.evaluate(AXE);
  return await page.evaluate(async () => {
    interface Found {
      violations: { id: string; impact: string; nodes: { target: string[]; failureSummary: string }[] }[];
    }
    const { axe } = globalThis as unknown as { axe: { run(): Promise<Found> } };
    const { violations } = await axe.run();
    return violations
      .filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} ${n.failureSummary}`).join('; ')}`);
  });
}

/** What a chart has drawn: unix seconds, and values by name. Of a stack, what lies below is taken off again. */
export async function drawnChart(
  page: Page,
  title: string,
  isStacked = false,
): Promise<{ times: number[]; curves: Record<string, (number | null)[]> }> {
  const plot = page
    .locator('figure.chart', {
      has: page.locator('.title', { hasText: new RegExp(`^${title.replaceAll('.', String.raw`\.`)}$`) }),
    })
    .locator('.plot');
  await plot.locator('canvas').waitFor();
  return await plot.evaluate((element, stacked) => {
    const { data, series } = (element as ChartElement).plot!;
    const [times, ...values] = data as unknown as (number | null)[][];
    const labels = series.slice(1).map((s) => (typeof s.label === 'string' ? s.label : ''));
    const curves = labels.map((label, i): [string, (number | null)[]] => [
      label,
      values[i]!.map((v, at) => (stacked && i + 1 < values.length && v !== null ? v - (values[i + 1]![at] ?? 0) : v)),
    ]);
    return { times: times as number[], curves: Object.fromEntries(curves) };
  }, isStacked);
}

/** That nothing of the page lies beside the window. */
export async function expectFits(page: Page): Promise<void> {
  expect(
    await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth),
  ).toBeLessThanOrEqual(0);
}
