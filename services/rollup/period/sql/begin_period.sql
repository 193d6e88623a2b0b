-- Begins a period. Parameters: begin (unix seconds).
INSERT INTO rollup_periods (begin)
SELECT toDateTime({begin:UInt32}, 'UTC')
