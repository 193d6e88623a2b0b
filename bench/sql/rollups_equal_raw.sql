-- Whether every rollup has what the raw tables have: the views of a batch are written after its rows. Rows: 1.
SELECT
    (SELECT sum(length(refs)) FROM edge_logs) AS refs,
    (SELECT countIf(is_invocation) FROM function_edge_logs) AS invocations,
    refs = (SELECT sumIf(requests, width = 0 AND url = '') FROM api_requests)
        AND refs = (SELECT sumIf(requests, width = 60) FROM api_requests)
        AND refs = (SELECT sumIf(requests, width = 3600) FROM api_requests)
        AND invocations = (SELECT sumIf(count, width = 60) FROM function_invocations)
        AND invocations = (SELECT sumIf(count, width = 3600) FROM function_invocations)
        AND invocations = (SELECT sumIf(count, width = 86400) FROM function_invocations) AS equal
