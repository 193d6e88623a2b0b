-- Run by the image at the first start of a node: the database whose tables read all shards.
CREATE DATABASE IF NOT EXISTS sluice_all;
