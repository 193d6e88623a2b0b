import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

/** A schema as a registry answers with it. */
interface Registered {
  readonly schema: string;
  readonly schemaType?: string;
  readonly references?: readonly object[];
}

export interface TestRegistry {
  readonly url: string;
  /** what was asked, in order */
  readonly requests: { readonly method: string; readonly path: string; readonly authorization: string | undefined }[];
  /** an id of the next schema, or of this one */
  register(schema: string | object | Registered, id?: number): number;
  /** answers every question with this status and text until it is undefined again */
  fault: { readonly status: number; readonly body: string } | undefined;
  /** no longer listens; start() listens on the same port again */
  stop(): Promise<void>;
  start(): Promise<void>;
}

/** A schema registry on loopback: that part of Confluent's API which producers and consumers use. */
export async function startRegistry(): Promise<TestRegistry> {
  const schemas = new Map<number, Registered>();
  let server: Server | undefined;
  let port = 0;
  const registry: TestRegistry = {
    get url() {
      return `http://127.0.0.1:${port}`;
    },
    requests: [],
    fault: undefined,
    register: (schema, id = schemas.size + 1) => {
      schemas.set(
        id,
        typeof schema === 'string' ? { schema } : 'schema' in schema ? schema : { schema: JSON.stringify(schema) },
      );
      return id;
    },
    stop: async () => {
      const stopped = server;
      server = undefined;
      stopped?.closeAllConnections();
      await new Promise((resolve) => {
        if (stopped === undefined) resolve(undefined);
        else stopped.close(resolve);
      });
    },
    start: async () => {
      server = createServer((request, response) => {
        void answer(request).then(({ status, body }) => {
          response.writeHead(status, { 'content-type': 'application/vnd.schemaregistry.v1+json' });
          return response.end(body);
        });
      });
      await new Promise<void>((resolve, reject) => {
        server!.once('error', reject);
        server!.listen(port, '127.0.0.1', resolve);
      });
      port = (server.address() as AddressInfo).port;
    },
  };
  await registry.start();
  return registry;

  async function answer(request: IncomingMessage): Promise<{ status: number; body: string }> {
    const { pathname } = new URL(request.url ?? '/', 'http://registry');
    const body = await text(request);
    registry.requests.push({
      method: request.method ?? '',
      path: pathname,
      authorization: request.headers.authorization,
    });
    if (registry.fault !== undefined) return registry.fault;
    const byId = /\/schemas\/ids\/(\d+)$/.exec(pathname);
    if (request.method === 'GET' && byId !== null) {
      const found = schemas.get(Number(byId[1]));
      return found === undefined
        ? { status: 404, body: '{"error_code":40403,"message":"Schema not found"}' }
        : { status: 200, body: JSON.stringify(found) };
    }
    const subject = /\/subjects\/([^/]+)(\/versions)?$/.exec(pathname);
    if (request.method === 'POST' && subject !== null) {
      const { schema } = JSON.parse(body) as Registered;
      const known = [...schemas].find(([, registered]) => registered.schema === schema)?.[0];
      return {
        status: 200,
        body: JSON.stringify({ id: known ?? registry.register(schema), subject: subject[1], version: 1, schema }),
      };
    }
    return { status: 404, body: '{"error_code":404,"message":"HTTP 404 Not Found"}' };
  }
}
