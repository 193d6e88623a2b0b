-- Object storage logs: the same columns as postgres_logs.
CREATE TABLE storage_logs AS postgres_logs;
