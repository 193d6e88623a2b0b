import avro from 'avsc';
import { expect, test } from 'vitest';
import { minBytes } from './resolution.ts';

const FIXED = { type: 'fixed', name: 'f', size: 7 } as const;

test.each([
  ['null', 0],
  ['boolean', 1],
  ['string', 1],
  ['float', 4],
  ['double', 8],
  [FIXED, 7],
  [['null', 'double'], 1],
  [['double', { ...FIXED, size: 3 }], 4],
  [
    {
      type: 'record',
      name: 'r',
      fields: [
        { name: 'a', type: 'double' },
        { name: 'b', type: 'float' },
      ],
    },
    12,
  ],
] as const)('a value of %j takes at least %i bytes', (schema, bytes) => {
  expect(minBytes(avro.Type.forSchema(schema as avro.Schema))).toBe(bytes);
});
