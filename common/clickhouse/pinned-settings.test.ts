import { expect, test } from 'vitest';
import { fewRowsSettings, insertSettings, knownSettings, pinnedSettings } from './pinned-settings.ts';

const anySetting = new (class extends Set<string> {
  override has(): boolean {
    return true;
  }
})();
const everything = new Set(
  Object.keys({ ...pinnedSettings('read of few rows', anySetting), ...pinnedSettings('insert', anySetting) }),
);
const without = (...names: string[]): Set<string> => new Set([...everything].filter((name) => !names.includes(name)));

test('a setting that this version does not know is left out', () => {
  expect(pinnedSettings('insert', without('deduplicate_insert'))).not.toHaveProperty('deduplicate_insert');
  expect(pinnedSettings('insert', everything)).toHaveProperty('deduplicate_insert', 'backward_compatible_choice');
  expect(knownSettings({ deduplicate_insert: 'enable', max_threads: 2 }, without('deduplicate_insert'))).toEqual({
    max_threads: 2,
  });
});

test('views are inlined by engines that can', () => {
  expect(knownSettings(fewRowsSettings, everything)).toHaveProperty('analyzer_inline_views', 1);
  expect(knownSettings(fewRowsSettings, without('analyzer_inline_views'))).not.toHaveProperty('analyzer_inline_views');
});

test('what a profile`s compatibility changed is taken back before anything else is set', () => {
  expect(Object.keys(pinnedSettings('read', everything))[0]).toBe('compatibility');
  expect(Object.keys(pinnedSettings('insert', everything))[0]).toBe('compatibility');
});

test('an insert of data is one block with a token that counts', () => {
  expect(insertSettings).toMatchObject({
    async_insert: 0,
    insert_deduplicate: 1,
    deduplicate_blocks_in_dependent_materialized_views: 1,
    max_insert_threads: 1,
    input_format_max_block_size_bytes: 0,
    max_partitions_per_insert_block: 0,
  });
});

test('only inserts of data leave room on the disk, so that retention can record and drop a day', () => {
  expect(pinnedSettings('insert', everything)).toHaveProperty('min_free_disk_bytes_to_perform_insert', 268_435_456);
  expect(pinnedSettings('write', everything)).not.toHaveProperty('min_free_disk_bytes_to_perform_insert');
});
