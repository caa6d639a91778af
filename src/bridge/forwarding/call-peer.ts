import type { LookupFunction } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import type { RequestId } from '../../platform/json-rpc/envelope.ts';
import { networkReason, postForEvents } from '../agents/post-for-events.ts';
import { type FileRequest, type RelayedFile, requestFile } from '../artifacts/artifact-links.ts';
import { createPeerConnector, NotConnected } from './peer-connector.ts';
import { failed, type PeerAnswer, readPeerDocument, readPeerEnvelope, readPeerMessage } from './read-peer-answer.ts';

export interface PeerCall {
  /** The endpoint of the node, without a final slash. */
  readonly endpoint: string;
  /** The path that the call came on. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined for a notification. */
  readonly id: RequestId | undefined;
  readonly method: string;
  readonly params: unknown;
  readonly connectMs: number;
  /** For the head of the answer. */
  readonly headersMs: number;
  /** Called when the connection stands, before anything is sent; what it throws is thrown by the call, and nothing is sent. */
  beforeSend(): Promise<void>;
  /** The node has taken the call, and its answer may be long in coming. */
  accepted(): void;
  /** Something that the node tells on the way to its answer. Resolves when more can be taken. */
  notified(method: string, params: unknown, eventId: string | undefined): Promise<void>;
}

export type CallPeer = (call: PeerCall, signal: AbortSignal) => Promise<PeerAnswer>;

export interface CallPeerOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly lookup?: LookupFunction | undefined;
  /** For each next byte; a node shows a sign of life every fifteen seconds (contract/bridge 1). */
  readonly idleMs: number;
}

const MAX_EVENT_CHARACTERS = 64 * 1024 * 1024;

/**
 * Hands calls to other nodes. Each has a connection of its own: one that was used before may have died unseen, and then
 * nobody could say whether the node has got the call.
 */
export function createCallPeer({ clock, lookup, idleMs }: CallPeerOptions): CallPeer {
  return async (call, signal) => {
    const { Client, buildConnector } = await import('undici');
    let isSent = false;
    let stopped: { readonly error: unknown } | undefined;
    const connect = createPeerConnector(buildConnector, {
      clock,
      lookup,
      connectMs: call.connectMs,
      async beforeSend() {
        try {
          await call.beforeSend();
        } catch (error) {
          stopped = { error };
          throw error;
        }
        isSent = true;
      },
    });
    const dispatcher = new Client(new URL(call.endpoint).origin, { connect, pipelining: 0 });
    try {
      const { id, method, params } = call;
      const response = await postForEvents({
        url: `${call.endpoint}${call.path}`,
        headers: call.headers,
        body: JSON.stringify({ jsonrpc: '2.0', id, method, params }),
        signal,
        headersTimeoutMs: call.headersMs,
        idleTimeoutMs: idleMs,
        maxEventCharacters: MAX_EVENT_CHARACTERS,
        maxDocumentBytes: MAX_EVENT_CHARACTERS,
        dispatcher,
      });
      if (response.kind === 'document') return readPeerDocument(response.status, response.text);
      call.accepted();
      return await readStream(response.events, call);
    } catch (error) {
      if (stopped !== undefined) throw stopped.error;
      if (error instanceof NotConnected) return unreachable(error);
      if (signal.aborted) return failed('this node is shutting down', isSent ? 'unknown' : 'not_started');
      return failed(networkReason(error), isSent ? 'unknown' : 'not_started');
    } finally {
      await dispatcher.destroy();
    }
  };
}

function unreachable({ message: reason, isRefused }: NotConnected): PeerAnswer {
  const code = isRefused ? 'TASK_FORWARD_ENDPOINT_REFUSED' : 'TASK_FORWARD_UNREACHABLE';
  return { kind: 'failed', code, reason, outcome: 'not_started', isDown: true };
}

async function readStream(
  events: AsyncIterable<{ readonly id?: string | undefined; readonly data: string }>,
  call: PeerCall,
): Promise<PeerAnswer> {
  for await (const { id, data } of events) {
    if (data === '[DONE]') break;
    const message = readPeerMessage(data);
    if (message === undefined) return failed('it sent what is not JSON', 'unknown');
    if (typeof message.method !== 'string') return readPeerEnvelope(message, 200);
    await call.notified(message.method, message.params, id);
  }
  return failed('the connection was cut', 'unknown');
}

/** Requests a file from a node, on a connection of its own that ends with it. */
export async function requestPeerFile(
  { nodeId, ...file }: Pick<FileRequest, 'url' | 'headers' | 'signal'> & { readonly nodeId: string },
  { clock, lookup, connectMs }: Pick<CallPeerOptions, 'clock' | 'lookup'> & Pick<PeerCall, 'connectMs'>,
): Promise<RelayedFile> {
  const { Client, buildConnector } = await import('undici');
  const connect = createPeerConnector(buildConnector, { clock, lookup, connectMs, beforeSend: async () => undefined });
  const dispatcher = new Client(new URL(file.url).origin, { connect, pipelining: 0 });
  const end = () => void dispatcher.destroy();
  try {
    const found = await requestFile({ ...file, place: nodeId, dispatcher });
    found.body.once('close', end);
    return found;
  } catch (error) {
    end();
    throw error;
  }
}
