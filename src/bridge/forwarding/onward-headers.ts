import type { BridgeClient } from '../bridge-client.ts';
import { OPERATOR } from '../principal.ts';
import { type ForwardedRequest, forwardHeaders } from './forward-headers.ts';

export interface OnwardRequest {
  readonly target: string;
  /** Whose it is here. */
  readonly owner: string;
  /** Set when another bridge has sent it; then this node only hands it on. */
  readonly incoming: ForwardedRequest | undefined;
  /** How many nodes it has passed, when it came without the forward token; 0 unless given. */
  readonly hop?: number | undefined;
  /** Empty where there is none. */
  readonly requestId: string;
}

/** Makes the headers of requests that go to other nodes: nothing of the client's own goes along. */
export type OnwardHeaders = (request: OnwardRequest) => Readonly<Record<string, string>>;

export interface OnwardHeadersOptions {
  readonly localId: string;
  /** The version of the contract that this bridge keeps. */
  readonly contract: string;
  /** The forward token; empty: none is sent. */
  token(): string;
}

export function createOnwardHeaders({ localId, contract, token }: OnwardHeadersOptions): OnwardHeaders {
  return ({ target, owner, incoming, hop = 0, requestId }) => {
    // The holder of the main token is the node itself.
    const begun = { source: localId, hop, trace: '', owner: owner === OPERATOR ? '' : owner, ...incoming };
    const trace = begun.trace || requestId;
    const credential = token();
    return {
      ...(credential !== '' && { authorization: `Bearer ${credential}` }),
      // The other node takes it for its own, so that the logs of all nodes have the same one.
      ...(trace !== '' && { 'x-request-id': trace }),
      ...forwardHeaders({ ...begun, target, hop: begun.hop + 1, trace }, contract),
    };
  };
}

/** What a caller's repeated request says goes on as it is, so that it finds its turn where that runs. */
export function resumeHeaders(client: BridgeClient): Readonly<Record<string, string>> {
  if (client.kind === 'socket') return {};
  const { afterSeq, idempotencyKey } = client.resume;
  return {
    ...(afterSeq !== undefined && { 'last-event-id': String(afterSeq) }),
    ...(idempotencyKey !== '' && { 'idempotency-key': idempotencyKey }),
  };
}
