-- Whether every rollup has what the raw tables have: the views of a batch are written after its rows. Rows: 1.
SELECT
    (SELECT sum(length(refs)) FROM edge_logs) AS refs,
    (SELECT countIf(is_invocation) FROM function_edge_logs) AS invocations,
    refs = (SELECT sum(requests) FROM api_requests_1m)
        AND refs = (SELECT sum(requests) FROM api_requests_1h)
        AND refs = (SELECT count() FROM api_request_events)
        AND invocations = (SELECT sum(count) FROM function_invocations_1m)
        AND invocations = (SELECT sum(count) FROM function_invocations_1h) AS equal
