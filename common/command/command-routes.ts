import { PROOF_PATH, proofOf, proofSecret } from '../config/service-proof.ts';
import { StartError } from '../errors.ts';
import { ApiError, invalidParameters, readJson } from '../http/errors.ts';
import { ERROR, jsonAnswer, objectSchema, sharedAnswers } from '../http/operation.ts';
import type { OpenRoute, Operation, Route } from '../http/route.ts';
import { checkArguments, schemaOf } from './arguments.ts';
import { COMMAND_TIMEOUT_MS, type Command, type CommandContext } from './command.ts';

const MAX_ARGS_BYTES = 64 * 1024;

/** The arguments of a call that the log shows: what was done, and to which backup, topic or key. */
const AUDITED = new Set(['action', 'place', 'base', 'topic', 'id', 'name']);

/** Proves to commands that this is the service of their data folder, before they send it their key. */
export function proofRoute({ settings }: Pick<CommandContext, 'settings'>): OpenRoute {
  const secret = proofSecret(settings.DATA_DIR);
  return {
    method: 'GET',
    path: PROOF_PATH,
    bodyLimit: 1,
    handle: async ({ query, arrivedAt }) => {
      const proof = proofOf(secret, arrivedAt, query.get('nonce') ?? '');
      if (proof === undefined)
        throw invalidParameters([{ parameter: 'nonce', message: 'must be 64 hexadecimal digits' }]);
      return { status: 200, json: { proof } };
    },
  };
}

/**
 * Operators' commands, run where the engine is: POST /api/commands/<name> with the arguments as JSON and an admin key.
 * A command's refusal is a 409 with its reason.
 */
export function commandRoutes(context: CommandContext, commands: readonly Command[]): Route[] {
  return commands.map((command) => ({
    method: 'POST',
    path: `/api/commands/${command.name}`,
    scope: 'admin',
    bodyLimit: MAX_ARGS_BYTES,
    timeoutMs: COMMAND_TIMEOUT_MS,
    documented: operationOf(command),
    handle: async ({ body, key, address, signal }) => {
      const args = readJson(body, 'the body must be JSON with the arguments');
      checkArguments(command, args);
      const audited = Object.entries(args as Readonly<Record<string, unknown>>).filter(([name]) => AUDITED.has(name));
      const audit = { command: command.name, ...Object.fromEntries(audited) };
      try {
        const result = await command.run({ ...context, signal }, args);
        return { status: 200, json: { result }, audit: { ...audit, ...command.audit?.(result) } };
      } catch (error) {
        context.logger.info({ ...audit, key_id: key.id, address }, 'command_failed');
        if (error instanceof StartError) throw new ApiError('conflict', error.message, { cause: error });
        throw error;
      }
    },
  }));
}

function operationOf(command: Command): Operation {
  return {
    operationId: `command_${command.name.replaceAll('-', '_')}`,
    summary: `What npm run ${command.name} does; needs a key with the scope admin`,
    description: Object.entries(command.forms)
      .map(([name, { help }]) => `${name === '' ? '' : `${name}: `}${help}.`)
      .join(' '),
    requestBody: { required: true, content: { 'application/json': { schema: schemaOf(command) } } },
    responses: {
      200: jsonAnswer('What the command found or did', objectSchema({ result: { type: 'object' } })),
      ...sharedAnswers(400, 401, 403, 429, 503),
      409: jsonAnswer('The command refuses; the message says why', ERROR),
    },
  };
}
