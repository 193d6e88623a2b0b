-- How many of a partition's last messages are dead letters: of the last batches that hold `window` messages together, or of all since `from`.
-- Parameters: topic, partition, incarnation, from, window. Reads batches backwards in its sorting order, `window` rows at most; one row.
SELECT sum(dead_lettered) AS bad, sum(messages) AS messages
FROM
(
    SELECT
        dead_lettered,
        stored + dead_lettered AS messages,
        sum(stored + dead_lettered) OVER (ORDER BY first DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS later
    FROM
    (
        SELECT first, stored, dead_lettered
        FROM batches
        WHERE topic = {topic:String} AND partition = {partition:UInt32} AND incarnation = {incarnation:UInt32} AND first >= {from:UInt64}
        ORDER BY topic DESC, partition DESC, incarnation DESC, first DESC
        LIMIT 1 BY first
        LIMIT {window:UInt64}
    )
)
WHERE later < {window:UInt64}
