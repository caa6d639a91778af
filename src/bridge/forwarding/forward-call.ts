import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { RelayedError, rawJson } from '../../platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../platform/json-rpc/method-table.ts';
import { asObject } from '../agents/agent-text.ts';
import { wordOf } from '../agents/post-for-events.ts';
import { type ArtifactLinks, relinkArtifacts } from '../artifacts/artifact-links.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { isOperators } from '../principal.ts';
import {
  type CallPeer,
  type ForwardedRequest,
  forwardHeaders,
  type PeerAnswer,
  type PeerError,
  type PeerFailure,
} from './call-node.ts';
import type { ForwardCandidate } from './decide-forward.ts';
import { nameNode } from './merged-jobs.ts';
import type { NodeHealth } from './node-health.ts';
import { type Binding, type Bound, type CallNames, readJobNames, type SessionRoutes } from './session-routes.ts';
import { seqOf, type UpdateRelay } from './update-relay.ts';

export interface OutgoingCall {
  readonly call: MethodCall<BridgeClient>;
  /** Under its own name, whatever alias it was called by. */
  readonly method: string;
  /** As they are sent: with the files that the call names. */
  readonly params: unknown;
  /** In the order in which they are tried. */
  readonly candidates: readonly ForwardCandidate[];
  /** The owner on this node. */
  readonly owner: string;
  readonly about: CallNames;
  readonly path: string;
  headersFor(target: string): Readonly<Record<string, string>>;
  /** Called once the node has accepted the call: then later calls about the same session or job may be sent. */
  accepted(): void;
}

type ForwardCall = (outgoing: OutgoingCall, signal: AbortSignal) => Promise<unknown>;

interface ForwardCallOptions {
  readonly callPeer: CallPeer;
  readonly routes: Pick<SessionRoutes, 'bind' | 'release' | 'remember'>;
  readonly health: Pick<NodeHealth, 'markUp' | 'markDown'>;
  readonly relay: UpdateRelay;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly limits: ForwardLimits;
  readonly links: Pick<ArtifactLinks, 'relay'>;
  /** Returns the way to a node that turns out to have the session or job of the call. */
  candidate(target: string): ForwardCandidate | undefined;
  onFailure(failure: { readonly nodeId: string; readonly reason: string; readonly outcome: string }): void;
}

export interface ForwardLimits {
  /** For all candidates together, so that a call fails within five seconds when all nodes are down. */
  readonly connectMs: number;
  /** A node sends the head of its answer as soon as it has taken a turn. */
  readonly turnHeadersMs: number;
  /** Other calls send the head of their response when they are done. */
  readonly headersMs: number;
}

/** Another call has bound the session to a node first. */
class BoundElsewhere extends Error {
  readonly nodeId: string;
  constructor(nodeId: string) {
    super(`bound to ${nodeId}`);
    this.nodeId = nodeId;
  }
}

const TURN_METHODS: ReadonlySet<string> = new Set(['session.start', 'session.message']);
const METHOD_NOT_FOUND = -32601;
/** Errors that come before a session or job is stored. */
const NOTHING_STARTED: ReadonlySet<string> = new Set([
  'PARSE_ERROR',
  'INVALID_REQUEST',
  'REQUEST_TOO_COMPLEX',
  'METHOD_NOT_FOUND',
  'INVALID_PARAMS',
  'UNAUTHORIZED',
  'FORBIDDEN',
  'NOT_IN_TEAM',
  'TEAM_WITHOUT_BRIDGE',
  'FORWARD_PERSON_REFUSED',
  'TOO_MANY_JOBS',
  'PROVIDER_UNKNOWN',
]);
const MIN_CONNECT_MS = 200;

/**
 * Sends a call to the first candidate that accepts it. The next candidate is tried only when it is certain that the previous
 * one has done nothing.
 */
export function createForwardCall(options: ForwardCallOptions): ForwardCall {
  const { callPeer, routes, health, relay, clock, limits, onFailure } = options;

  return async (outgoing, signal) => {
    const { method, about, owner } = outgoing;
    const deadline = clock.monotonic() + limits.connectMs;
    let left = [...outgoing.candidates];
    let bound: Bound | undefined;
    for (;;) {
      const candidate = left.shift();
      if (candidate === undefined) {
        const reason = 'the node that has what it is about is not known here';
        throw new AppError('TASK_FORWARD_PEER_UNKNOWN', { reason, outcome: 'not_started' });
      }
      const { target } = candidate;
      const binding: Binding = { ...about, owner, nodeId: target };
      const bindsFirst = about.binds === 'before';
      const connectMs = Math.max(MIN_CONNECT_MS, (deadline - clock.monotonic()) / (left.length + 1));
      let answer: PeerAnswer;
      try {
        answer = await ask(outgoing, candidate, connectMs, signal, async () => {
          if (!bindsFirst) return;
          bound = await routes.bind(binding, bound);
          if (bound.nodeId !== target) throw new BoundElsewhere(bound.nodeId);
        });
      } catch (error) {
        if (!(error instanceof BoundElsewhere)) throw error;
        left = [options.candidate(error.nodeId)].filter((one) => one !== undefined);
        continue;
      }
      if (answer.kind !== 'failed') {
        health.markUp(target);
        if (answer.kind === 'error') {
          if (bound !== undefined && startedNothing(answer.error)) await routes.release(binding, bound);
          throw relayed(answer.error, target);
        }
        if (about.binds === 'after') await routes.remember(binding);
        if (method === 'app.jobs.submit')
          await routes.remember({ ...binding, names: readJobNames(answer.result, target) });
        nameNode(method, answer.result, target);
        const place = `node.${candidate.nextHop.id}`;
        relinkArtifacts(answer.result, (path) => options.links.relay(place, path));
        return rawJson(JSON.stringify(answer.result));
      }
      onFailure({ nodeId: target, reason: answer.reason, outcome: answer.outcome });
      if (answer.isDown) health.markDown(target, answer.reason);
      if (answer.outcome === 'unknown') throw failure(answer, target);
      if (left.length > 0) continue;
      if (bound !== undefined) await routes.release({ ...binding, nodeId: bound.nodeId }, bound);
      throw failure(answer, target);
    }
  };

  function ask(
    { call, method, params: sentParams, about, owner, path, headersFor, accepted }: OutgoingCall,
    { target, nextHop }: ForwardCandidate,
    connectMs: number,
    signal: AbortSignal,
    beforeSend: () => Promise<void>,
  ): Promise<PeerAnswer> {
    const client = call.caller;
    const session = about.names.find(({ kind }) => kind === 'session');
    const shared =
      client.stays && client.sink !== undefined && session !== undefined
        ? relay.open(client.sink, `${owner}\n${session.name}`)
        : undefined;
    let isHeard = true;
    return callPeer(
      {
        endpoint: nextHop.endpoint,
        path,
        headers: headersFor(target),
        id: call.id,
        method,
        params: sentParams,
        connectMs,
        headersMs: TURN_METHODS.has(method) ? limits.turnHeadersMs : limits.headersMs,
        beforeSend,
        accepted() {
          accepted();
          call.accept();
        },
        // When the caller disconnects, the turn goes on and its response is still read, because the place of a session may depend on it.
        async notified(name, params, eventId) {
          if (!isHeard) return;
          const send = (): void => call.notify(name, rawJson(JSON.stringify(params ?? {})), eventId);
          const seq = seqOf(params);
          if (shared === undefined || seq === undefined) send();
          else shared.take(seq, send);
          await shared?.room();
          if (client.sink !== undefined) isHeard = await client.sink.drained();
        },
      },
      signal,
    ).finally(() => shared?.end());
  }
}

function startedNothing(error: PeerError): boolean {
  return NOTHING_STARTED.has(wordOf(error)) || asObject(error.data).outcome === 'not_started';
}

function relayed({ status, code, message, data }: PeerError, nodeId: string): RelayedError {
  // An older node may lack a method that this one has, so the error names the node (case B-96).
  const isForeignMethod = code === METHOD_NOT_FOUND && typeof data === 'object' && data !== null;
  const told = isForeignMethod ? { sourceNodeId: nodeId, ...data } : data;
  return new RelayedError({ code, message, data: told }, status);
}

function failure({ code, reason, outcome, error }: PeerFailure, nodeId: string): AppError {
  // The error of the node says more than ours.
  return error === undefined ? new AppError(code, { nodeId, reason, outcome }) : relayed(error, nodeId);
}

interface OnwardRequest {
  readonly target: string;
  /** The owner on this node. */
  readonly owner: string;
  /** A token of the caller, when it is a person; empty otherwise. */
  readonly person: string;
  /** The id of the team that the person works for; empty for none. */
  readonly team: string;
  /** Set when another bridge has sent it; then this node only passes it on. */
  readonly incoming: ForwardedRequest | undefined;
  /** How many nodes it has passed, when it came without the forward token; 0 unless given. */
  readonly hop?: number | undefined;
  /** Empty where there is none. */
  readonly requestId: string;
}

/** Makes the headers of requests to other nodes. None of the client's own headers is passed on. */
type OnwardHeaders = (request: OnwardRequest) => Readonly<Record<string, string>>;

interface OnwardHeadersOptions {
  readonly localId: string;
  /** The version of the contract that this bridge keeps. */
  readonly contract: string;
  /** The forward token; empty: none is sent. */
  token(): string;
}

export function createOnwardHeaders({ localId, contract, token }: OnwardHeadersOptions): OnwardHeaders {
  return ({ target, owner, person, team, incoming, hop = 0, requestId }) => {
    // The holder of the main token is the node itself.
    const ofOwner = isOperators(owner) ? '' : owner;
    const begun = { source: localId, hop, trace: '', owner: ofOwner, person, team, ...incoming };
    const trace = begun.trace || requestId;
    const credential = token();
    return {
      ...(credential !== '' && { authorization: `Bearer ${credential}` }),
      // The other node uses the same request id, so that the logs of all nodes have it.
      ...(trace !== '' && { 'x-request-id': trace }),
      ...forwardHeaders({ ...begun, target, hop: begun.hop + 1, trace }, contract),
    };
  };
}

/** Passes on the resume headers of a repeated request, so that the node finds the turn. */
export function resumeHeaders({ resume }: BridgeClient): Readonly<Record<string, string>> {
  const { afterSeq, idempotencyKey } = resume;
  return {
    ...(afterSeq !== undefined && { 'last-event-id': String(afterSeq) }),
    ...(idempotencyKey !== '' && { 'idempotency-key': idempotencyKey }),
  };
}
