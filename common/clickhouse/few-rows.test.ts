import { expect, test } from 'vitest';
import { fewRowsSettings } from './few-rows.ts';

test('views are inlined by engines that can', () => {
  const inlines = (version: string): boolean => Object.hasOwn(fewRowsSettings(version), 'analyzer_inline_views');
  expect(['25.8.3.66', '26.3.1.1', '26.4.1.566', '26.7.2.1', '27.1.1.1'].map(inlines)).toEqual([false, false, true, true, true]);
});
