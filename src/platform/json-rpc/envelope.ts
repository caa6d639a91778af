/**
 * How messages look on the wire. All parts come as JSON text, so that a result is serialised once even where it stands
 * twice. `seq` is the number of the message on its connection; shapes without one ignore it.
 */
export interface Envelope {
  /** Whether requests must say `"jsonrpc": "2.0"`. */
  readonly versioned: boolean;
  success(id: string, result: string, seq: number): string;
  failure(id: string, error: string, seq: number): string;
  notification(method: string, params: string | undefined, seq: number): string;
  request(id: string, method: string, params: string | undefined): string;
}

/** JSON-RPC 2.0 as it is specified. */
export const plainEnvelope: Envelope = {
  versioned: true,
  success: (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`,
  failure: (id, error) => `{"jsonrpc":"2.0","id":${id},"error":${error}}`,
  notification: (method, params) => `{"jsonrpc":"2.0","method":${method}${paramsMember(params)}}`,
  request: (id, method, params) => `{"jsonrpc":"2.0","id":${id},"method":${method}${paramsMember(params)}}`,
};

/** JSON-RPC with the members that older clients read beside its own: `ok`, `type`, `event`, `payload`, `seq`. */
export const hybridEnvelope: Envelope = {
  versioned: true,
  success: (id, result, seq) =>
    `{"jsonrpc":"2.0","id":${id},"result":${result},"ok":true,"type":"res","payload":${result},"seq":${seq}}`,
  failure: (id, error, seq) =>
    `{"jsonrpc":"2.0","id":${id},"error":${error},"ok":false,"type":"res","payload":null,"seq":${seq}}`,
  notification: (method, params = '{}', seq) =>
    `{"jsonrpc":"2.0","method":${method},"params":${params},"type":"event","event":${method},"payload":${params},"seq":${seq}}`,
  request: plainEnvelope.request,
};

/** JSON-RPC without its version member. */
export const bareEnvelope: Envelope = {
  versioned: false,
  success: (id, result) => `{"id":${id},"result":${result}}`,
  failure: (id, error) => `{"id":${id},"error":${error}}`,
  notification: (method, params) => `{"method":${method}${paramsMember(params)}}`,
  request: (id, method, params) => `{"id":${id},"method":${method}${paramsMember(params)}}`,
};

function paramsMember(params: string | undefined): string {
  return params === undefined ? '' : `,"params":${params}`;
}
