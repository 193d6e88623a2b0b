-- The time of the event that was replayed, as of batches.min_timestamp: its row goes with the raw retention, while the mark stays for 400 days.
-- NULL in marks from before this migration: of them it is not known.
ALTER TABLE dead_letter_replays ADD COLUMN IF NOT EXISTS timestamp Nullable(DateTime64(6, 'UTC'));
