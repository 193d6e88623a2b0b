-- The views that queries read show the period too: a condition on it leaves whole partitions out before anything of them is opened (docs/rollups.md, Periods).
-- The rollup service makes them anew right after this, as it does whenever what they stand for changes. Where history is still being built, they are to take
-- from raw what the tables lack: until it has done so, they refuse to answer instead of leaving it out.
CREATE OR REPLACE VIEW function_invocations_1m AS SELECT * FROM function_invocations_1m_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'function_invocations') = 0;

CREATE OR REPLACE VIEW function_invocations_1h AS SELECT * FROM function_invocations_1h_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'function_invocations') = 0;

CREATE OR REPLACE VIEW api_requests_1m AS SELECT * FROM api_requests_1m_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'api_requests') = 0;

CREATE OR REPLACE VIEW api_requests_1h AS SELECT * FROM api_requests_1h_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'api_requests') = 0;

CREATE OR REPLACE VIEW api_request_events AS SELECT * FROM api_request_events_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'api_requests') = 0;

CREATE OR REPLACE VIEW api_requests_overflow AS SELECT * FROM api_requests_overflow_v1
WHERE (SELECT throwIf(max(covered_from) > 0, 'history is being built') FROM rollups FINAL WHERE name = 'api_requests') = 0;
