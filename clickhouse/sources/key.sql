-- The columns that every landing table begins with: included in place of `-- include key.sql`.
    project,
    fromUnixTimestamp64Micro(if(verdict = '', assumeNotNull(micros), 0), 'UTC') AS timestamp,
    if(ifNull(id_text, '') = '', concat({topic:String}, '-', toString({partition:UInt32}), '-', toString(offset)), assumeNotNull(id_text)) AS id,
