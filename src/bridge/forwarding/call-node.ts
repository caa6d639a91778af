import type { IncomingHttpHeaders } from 'node:http';
import type { LookupFunction } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { ForeignError } from '../../platform/json-rpc/envelope.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import { type BridgeCall, callBridge, errorOf, networkReason, readMessage, wordOf } from '../agents/post-for-events.ts';
import { type FileRequest, requestFile } from '../artifacts/artifact-links.ts';
import { createPeerConnector, NotConnected } from './endpoints.ts';

interface PeerCall
  extends Required<Pick<BridgeCall, 'headers' | 'id' | 'method' | 'params' | 'accepted' | 'notified'>> {
  /** The endpoint of the node, without a final slash. */
  readonly endpoint: string;
  /** The path that the call came on. */
  readonly path: string;
  readonly connectMs: number;
  /** For the head of the answer. */
  readonly headersMs: number;
  /** Called when the connection is open, before anything is sent. If it throws, the call throws the same error and sends nothing. */
  beforeSend(): Promise<void>;
  readonly frame?: BridgeCall['frame'];
}

export type CallPeer = (call: PeerCall, signal: AbortSignal) => Promise<PeerAnswer>;

interface CallPeerOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly lookup?: LookupFunction | undefined;
  /** For each next byte; a node sends a heartbeat every fifteen seconds. */
  readonly idleMs: number;
}

const MAX_EVENT_CHARACTERS = 64 * 1024 * 1024;

/**
 * Sends calls to other nodes. Each call has a connection of its own: a reused connection may have broken without notice, and then
 * nobody would know whether the node has received the call.
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
      const { endpoint, path, connectMs: _, headersMs, beforeSend: _ours, frame, ...sent } = call;
      const response = await callBridge({
        ...sent,
        ...(frame !== undefined && { frame }),
        url: `${endpoint}${path}`,
        signal,
        headersTimeoutMs: headersMs,
        idleTimeoutMs: idleMs,
        maxEventCharacters: MAX_EVENT_CHARACTERS,
        maxDocumentBytes: MAX_EVENT_CHARACTERS,
        dispatcher,
      });
      if (response.kind === 'document') return readPeerDocument(response.status, response.text);
      if (response.kind === 'broken') return failed(response.reason, 'unknown');
      return readPeerEnvelope(response.message, 200);
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

/** An error that a node has answered with, and the HTTP status it came with. */
export interface PeerError extends ForeignError {
  readonly status: number;
}

/** The outcome of a call to a node. */
export type PeerAnswer =
  | { readonly kind: 'result'; readonly result: unknown }
  /** The node has processed the call and returned this error. */
  | { readonly kind: 'error'; readonly error: PeerError }
  | PeerFailure;

export interface PeerFailure {
  readonly kind: 'failed';
  readonly code: 'TASK_FORWARD_UNREACHABLE' | 'TASK_FORWARD_ENDPOINT_REFUSED' | 'TASK_FORWARD_FAILED';
  readonly reason: string;
  /** `not_started`: nothing was done, and another node may be asked. */
  readonly outcome: 'not_started' | 'unknown';
  /** Whether other calls to the node would fail right now too. */
  readonly isDown: boolean;
  /** The error of the node, if the caller should see it. */
  readonly error?: PeerError;
}

const FORWARDING_FAILED = -32060;

/** Refusals of our request, which come before the node reads the caller's call. */
const REFUSALS: Readonly<Record<number, string>> = {
  400: 'it takes our request for malformed',
  401: 'it does not accept our forward token',
  403: 'it does not let us in',
  404: 'it serves nothing at this path',
  405: 'it does not take a POST at this path',
  413: 'the request is too large for it',
  415: 'it does not take our content type',
  421: 'it does not serve the host name of its endpoint',
  426: 'it does not take a POST at this path',
  429: 'it wants fewer requests',
  431: 'our request headers are too large for it',
};

/** The refusals among these that other requests would get, too. */
const STANDING_REFUSALS: ReadonlySet<number> = new Set([401, 403, 421, 429]);

/** The node was reached, and failed. */
export function failed(reason: string, outcome: PeerFailure['outcome'], isDown = false): PeerFailure {
  return { kind: 'failed', code: 'TASK_FORWARD_FAILED', reason, outcome, isDown };
}

/** Reads an answer that is one document. */
export function readPeerDocument(status: number, text: string): PeerAnswer {
  if (status === 204) return { kind: 'result', result: {} };
  const message = readMessage(text);
  const error = peerErrorOf(message, status);
  const code = wordOf(error);
  // This refusal is about one person: the node serves all others.
  if (error !== undefined && code === 'FORWARD_PERSON_REFUSED') return { kind: 'error', error };
  if (error !== undefined && code === 'ISSUER_UNAVAILABLE') return { ...failed(error.message, 'not_started'), error };
  // Another instance sent this, and instances have no forward token: its own message says what is wrong.
  if (error !== undefined && code === 'RELAY_REFUSED') return failed(error.message, 'not_started');
  // An instance behind the node may already have processed the call.
  if (status === 503 && error !== undefined && asObject(error.data).outcome === 'unknown')
    return { kind: 'error', error };
  if (status === 503) return { ...failed('it takes no new work', 'not_started', true), ...(error && { error }) };
  if (status === 502 && error?.code === FORWARDING_FAILED) {
    // The next node could not forward the call; its error says whether anything was started.
    if (asObject(error.data).outcome !== 'not_started') return { kind: 'error', error };
    return { ...failed(error.message, 'not_started', true), error };
  }
  const refusal = REFUSALS[status];
  if (refusal !== undefined) return failed(refusal, 'not_started', STANDING_REFUSALS.has(status));
  if (status !== 200 || message === undefined) return failed(`it answered with status ${status}`, 'unknown');
  return readPeerEnvelope(message, status);
}

/** Reads the envelope of an answer. */
function readPeerEnvelope(message: Readonly<Record<string, unknown>>, status: number): PeerAnswer {
  const error = peerErrorOf(message, status);
  if (error !== undefined) return { kind: 'error', error };
  if (message.result === undefined) return failed('its answer has neither a result nor an error', 'unknown');
  return { kind: 'result', result: message.result };
}

function peerErrorOf(message: Readonly<Record<string, unknown>> | undefined, status: number): PeerError | undefined {
  const error = errorOf(message ?? {});
  return error && { status, ...error };
}

/** The headers of a request that another bridge has forwarded. */
export interface ForwardedRequest {
  /** The first node on its way. */
  readonly source: string;
  /** The node that is to run it. */
  readonly target: string;
  /** How many times it was handed on so far. */
  readonly hop: number;
  /** The request's id on the first node. */
  readonly trace: string;
  /** The owner on the first node; empty for the holder of its main token. */
  readonly owner: string;
  /** A token for five minutes of the person that it is for; empty for none. It is a secret. */
  readonly person: string;
  /** The id of the team that the person works for; empty for none. */
  readonly team: string;
  /** The path of the request, on which it is also sent to the next node. */
  readonly path: string;
}

export const FORWARDED_HEADER = 'x-app-bridge-forwarded';
const SOURCE = 'x-app-forward-source';
const TARGET = 'x-app-forward-target';
const HOP = 'x-app-forward-hop';
const TRACE = 'x-app-forward-trace';
const OWNER = 'x-app-forward-owner';
const PERSON = 'x-app-forward-person';
const TEAM = 'x-app-forward-team';

const NODE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const HOP_NUMBER = /^\d{1,3}$/;
const SIGNED_TOKEN = /^ey[\w-]{1,2000}\.[\w-]{1,4000}\.[\w-]{1,500}$/;
const WORD = /^[A-Za-z0-9:._-]{1,200}$/;

/** Reads the headers of a request that has the marker. A header that came twice is joined by a comma, and fits no pattern. */
export function readForwarded(headers: IncomingHttpHeaders, path: string): ForwardedRequest {
  if (headers[FORWARDED_HEADER] !== '1') throw malformed(FORWARDED_HEADER);
  return {
    source: read(headers, SOURCE, NODE_ID),
    target: read(headers, TARGET, NODE_ID),
    hop: Number(read(headers, HOP, HOP_NUMBER)),
    trace: headers[TRACE] === undefined ? '' : read(headers, TRACE, WORD),
    owner: headers[OWNER] === undefined ? '' : read(headers, OWNER, WORD),
    person: headers[PERSON] === undefined ? '' : read(headers, PERSON, SIGNED_TOKEN),
    team: headers[TEAM] === undefined ? '' : read(headers, TEAM, WORD),
    path,
  };
}

/** The hop of a request whose other headers may not count. Undefined when it has none, or a malformed one. */
export function readHop(headers: IncomingHttpHeaders): number | undefined {
  const value = headers[HOP];
  return typeof value === 'string' && HOP_NUMBER.test(value) ? Number(value) : undefined;
}

/** The header of a call to another bridge that is not forwarded, but made by an agent of this one. */
export function hopHeader(hop: number): Readonly<Record<string, string>> {
  return { [HOP]: String(hop) };
}

export function forwardHeaders(
  { source, target, hop, trace, owner, person, team }: Omit<ForwardedRequest, 'path'>,
  contract: string,
): Readonly<Record<string, string>> {
  return {
    [FORWARDED_HEADER]: '1',
    [SOURCE]: source,
    [TARGET]: target,
    [HOP]: String(hop),
    ...(trace !== '' && { [TRACE]: trace }),
    ...(owner !== '' && { [OWNER]: owner }),
    ...(person !== '' && { [PERSON]: person }),
    ...(team !== '' && { [TEAM]: team }),
    'x-app-contract': contract,
  };
}

function read(headers: IncomingHttpHeaders, name: string, pattern: RegExp): string {
  const value = headers[name];
  if (typeof value !== 'string' || !pattern.test(value)) throw malformed(name);
  return value;
}

function malformed(name: string): AppError {
  return new AppError('INVALID_REQUEST', {
    reason: `the header ${name} of a forwarded request is missing or malformed`,
  });
}
