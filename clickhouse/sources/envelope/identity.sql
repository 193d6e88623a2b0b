    ifNull(project_text, '') AS project,
    timestamp,
    if(id_text != '', assumeNotNull(id_text), concat({topic:String}, '-', toString({partition:UInt32}), '-', toString(offset))) AS id,
