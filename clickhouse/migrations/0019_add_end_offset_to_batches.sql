-- end_offset, end_record_time and end_checksum are of the last record at or before `last`: control records, compaction or a gap may follow it. In rows from
-- before this migration they are of a record at `last` itself, or there is none.
-- closes: nothing follows in this incarnation; its topic was made anew while the batch was under way, and what it lacks is gone.
ALTER TABLE batches
    ADD COLUMN IF NOT EXISTS end_offset Nullable(UInt64) DEFAULT if(isNull(end_checksum), NULL, last) CODEC(Delta, ZSTD(1)) AFTER judged_at,
    ADD COLUMN IF NOT EXISTS closes Bool DEFAULT false AFTER end_checksum;
