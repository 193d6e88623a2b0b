import { expect, test } from 'vitest';
import { parseSchema } from './schemas.ts';

/** Schemas with the fingerprints that Avro's own implementations are tested with, as signed 64-bit integers. */
const known: [schema: string, fingerprint: bigint][] = [
  ['"null"', 7195948357588979594n],
  ['{"type":"boolean"}', -6970731678124411036n],
  ['"int"', 8247732601305521295n],
  ['{"type":"long","logicalType":"timestamp-micros"}', -3434872931120570953n],
  ['"double"', -8181574048448539266n],
  ['"string"', -8142146995180207161n],
  ['[ "int" , {"type":"boolean"} ]', 5392556393470105090n],
  ['{"fields":[], "type":"record", "name":"foo", "doc":"foo", "aliases":["foo","bar"]}', -4824392279771201922n],
  ['{"fields":[], "type":"record", "name":"foo", "namespace":"x.y"}', 5916914534497305771n],
  ['{"fields":[], "type":"record", "name":"a.b.foo", "namespace":"x.y"}', -4616218487480524110n],
  [
    '{"fields":[{"type":"boolean","aliases":[],"name":"f1","default":"true"},{"order":"descending","name":"f2","doc":"Hello","type":"int"}],"type":"record","name":"foo"}',
    -4860222112080293046n,
  ],
  [
    '{"namespace":"x.y.z", "type":"enum", "name":"foo", "doc":"foo bar", "symbols":["A1", "A2"]}',
    -4448647247586288245n,
  ],
  ['{"namespace":"x.y.z", "type":"fixed", "name":"foo", "doc":"foo bar", "size":32}', -3064184465700546786n],
  ['{ "items":{"type":"null"}, "type":"array"}', -589620603366471059n],
  ['{ "values":"string", "type":"map"}', -8732877298790414990n],
  [
    '{"name":"PigValue","type":"record","fields":[{"name":"value","type":["null","int","long","PigValue"]}]}',
    -1759257747318642341n,
  ],
];

test.each(known)('%s has the fingerprint %s', (schema, fingerprint) => {
  expect(parseSchema(schema).fingerprint).toBe(BigInt.asUintN(64, fingerprint));
});
