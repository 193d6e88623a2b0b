-- Realtime logs: the same columns as postgres_logs.
CREATE TABLE realtime_logs AS postgres_logs;
