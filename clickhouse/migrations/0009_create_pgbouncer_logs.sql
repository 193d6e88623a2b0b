-- Connection pooler logs: the same columns as postgres_logs.
CREATE TABLE pgbouncer_logs AS postgres_logs;
