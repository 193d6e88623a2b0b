// Pieces of OpenAPI 3.1 that the operations of several services share.

export const ERROR = { $ref: '#/components/schemas/Error' } as const;

export function jsonAnswer(description: string, schema: object): object {
  return { description, content: { 'application/json': { schema } } };
}

/** Returns references to answers that the query service describes once for all operations. */
export function sharedAnswers(...statuses: readonly number[]): object {
  return Object.fromEntries(statuses.map((status) => [status, { $ref: `#/components/responses/${status}` }]));
}

export function optionalParameter(
  name: string,
  place: 'query' | 'header',
  description: string,
  schema: object = {},
): object {
  return { name, in: place, required: false, description, schema: { type: 'string', ...schema } };
}

/** The schema of an object. Every member is required unless `required` names fewer. */
export function objectSchema(properties: Readonly<Record<string, object>>, required = Object.keys(properties)) {
  return { type: 'object', required, properties };
}
