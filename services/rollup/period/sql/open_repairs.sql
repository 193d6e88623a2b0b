-- Open repairs. Reads rollup_repairs; one row per source, period and span, the oldest request first.
--   requested_at: of the newest request for the span, as text: the row that closes it carries it, so a request that arrived meanwhile stays open
SELECT
    source,
    toUnixTimestamp(r.period) AS period,
    toUnixTimestamp(r.from_time) AS from,
    toUnixTimestamp(r.to_time) AS to,
    toString(maxIf(r.requested_at, NOT r.done)) AS requested_at,
    argMaxIf(r.reason, r.requested_at, NOT r.done) AS reason,
    maxIf(r.accept_loss, NOT r.done) AS accept_loss,
    argMaxIf(r.outcome, r.requested_at, NOT r.done) AS outcome
FROM rollup_repairs AS r FINAL
GROUP BY source, r.period, r.from_time, r.to_time
HAVING maxIf(r.requested_at, NOT r.done) > maxIf(r.requested_at, r.done)
ORDER BY requested_at, period, from
