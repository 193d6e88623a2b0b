-- Serverless function event logs: the same columns as postgres_logs.
CREATE TABLE function_logs AS postgres_logs;
