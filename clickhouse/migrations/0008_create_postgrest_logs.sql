-- REST API layer logs: the same columns as postgres_logs.
CREATE TABLE postgrest_logs AS postgres_logs;
