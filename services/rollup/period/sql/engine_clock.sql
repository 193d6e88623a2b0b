-- The engine's clock. No parameters, reads no table. One row: now (unix milliseconds).
SELECT toUnixTimestamp64Milli(now64(3, 'UTC')) AS now
