-- Dead letters of each step of time by reason. Parameters: step (seconds), from (unix seconds). Prunes granules by time; one row per step and reason.
SELECT intDiv(toUnixTimestamp(inserted_at), {step:UInt32}) AS at, reason, count() AS letters
FROM dead_letters
WHERE inserted_at >= toDateTime64({from:UInt32}, 3, 'UTC')
GROUP BY at, reason
ORDER BY at, reason
