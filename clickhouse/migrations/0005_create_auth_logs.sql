-- Authentication logs: the same columns as postgres_logs.
CREATE TABLE auth_logs AS postgres_logs;
