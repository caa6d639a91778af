import type { TSchema } from 'typebox';
import type { ComponentSchemas, JsonSchema } from './component-schemas.ts';

/** What the document says of one JSON-RPC method; any method table has these columns. */
export interface DescribedMethod {
  readonly name: string;
  readonly summary: string;
  readonly params: TSchema;
  readonly result: TSchema;
}

/** JSON-RPC methods and the paths (routes with a body, and upgrades) at which they can be called. */
export interface DescribedMethods {
  readonly paths: readonly string[];
  readonly rows: readonly DescribedMethod[];
}

/** References to the union of all requests and to that of all answers. Each variant has its method's name as title. */
export interface MethodSchemas {
  readonly request: JsonSchema;
  readonly response: JsonSchema;
}

const REQUEST_ID = { type: ['string', 'number', 'null'], description: 'Comes back as sent.', examples: ['1'] };

export function describeMethods(rows: readonly DescribedMethod[], components: ComponentSchemas): MethodSchemas {
  const requests = rows.map(({ name, summary, params }) => ({
    title: name,
    description: summary,
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      id: { ...REQUEST_ID, description: `${REQUEST_ID.description} Without it the call is a notification.` },
      method: { const: name },
      params,
    },
    required: ['jsonrpc', 'method'],
  }));
  const responses = rows.map(({ name, result }) => ({
    title: name,
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      id: REQUEST_ID,
      result,
      ok: { const: true },
      type: { const: 'res' },
      payload: { description: 'The same as `result`.' },
      seq: { type: 'integer', description: 'Grows with every message of the connection.' },
    },
    required: ['jsonrpc', 'id', 'result', 'ok', 'type', 'payload', 'seq'],
  }));
  return {
    request: components.define('JsonRpcRequest', { oneOf: requests }),
    // Two methods may answer alike, so here more than one variant can match.
    response: components.define('JsonRpcResponse', { anyOf: responses }),
  };
}
