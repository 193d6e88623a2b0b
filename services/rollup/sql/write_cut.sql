-- Lets a period begin at this instant, which must lie ahead. Parameters: at (unix seconds).
INSERT INTO rollup_cuts (at)
SELECT toDateTime({at:UInt32}, 'UTC')
