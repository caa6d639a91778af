import { AppError } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { Dispatch, MethodCall } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { requireMay } from '../principal.ts';
import type { ForwardedRequest } from './call-node.ts';
import type { ForwardCandidate, ForwardDecision, Refusal } from './decide-forward.ts';
import type { OutgoingCall } from './forward-call.ts';
import { isMergedMethod, type MergedMethod, type MergeJobs } from './merged-jobs.ts';
import { type CallNames, type Place, readCallNames, type SessionRoutes } from './session-routes.ts';

/** A decision, and the owner of the session or job that the call is about. */
export interface PlacedDecision {
  readonly decision: ForwardDecision;
  readonly owner: string;
  /** Whether the place of that session or job was known before. */
  readonly isSettled: boolean;
}

interface ForwardingDispatchParts {
  /** Whether any call of our own clients could be for another node. */
  readonly isActive: boolean;
  /** `acme.jobs.get` under the name that it has here. */
  canonicalName(method: string): string;
  decide(method: string, principal: Principal, about: CallNames): Promise<PlacedDecision>;
  decideIncoming(method: string, incoming: ForwardedRequest): ForwardDecision;
  candidate(target: string): ForwardCandidate | undefined;
  readonly routes: Pick<SessionRoutes, 'findThread' | 'findJobs'>;
  /** Of all other nodes. */
  readonly nodeIds: readonly string[];
  readonly mergeJobs: MergeJobs;
  send(outgoing: Omit<OutgoingCall, 'path' | 'headersFor' | 'params'>): Promise<unknown>;
  logReceived(call: MethodCall<BridgeClient>, incoming: ForwardedRequest): void;
}

/** For calls whose place another node has decided. */
const NOTHING: CallNames = { names: [], threadId: '', binds: 'never', makes: false };

/** Decides where a call goes, and passes calls that stay here to `dispatch`. */
export function createForwardingDispatch(
  parts: ForwardingDispatchParts,
  dispatch: Dispatch<BridgeClient>,
): Dispatch<BridgeClient> {
  const order = createCallOrder();

  return (call) => {
    const { forwarded } = call.caller.caller;
    if (forwarded !== undefined) return serveIncoming(call, forwarded);
    return parts.isActive ? serveOwn(call) : dispatch(call);
  };

  function serveIncoming(call: MethodCall<BridgeClient>, incoming: ForwardedRequest): unknown {
    const method = parts.canonicalName(call.method);
    parts.logReceived(call, incoming);
    const decision = parts.decideIncoming(method, incoming);
    if (decision.kind === 'local') return dispatch(call);
    if (decision.kind === 'refuse') throw refusal(decision);
    const { candidates } = decision;
    return parts.send({ call, method, candidates, owner: '', about: NOTHING, accepted: () => undefined });
  }

  async function serveOwn(call: MethodCall<BridgeClient>): Promise<unknown> {
    const method = parts.canonicalName(call.method);
    const about = readCallNames(method, call.params);
    const { principal, hop } = call.caller.caller;
    // A call that another bridge has sent is not sent to further nodes.
    if (isMergedMethod(method) && hop === undefined) return listJobs(call, method);
    const [first] = about.names;
    // Calls of another bridge were ordered there. In a loop, such a call would wait here for itself.
    if (first !== undefined && hop === undefined) {
      const name = `${principal.id}\n${first.kind}\n${first.name}`;
      return order.run(name, (letNext) => go(call, method, about, letNext));
    }
    const isThread =
      first === undefined && about.threadId !== '' && (method === 'session.cancel' || method === 'session.close');
    return isThread ? toThread(call, method, about) : go(call, method, about, () => undefined);
  }

  async function listJobs(call: MethodCall<BridgeClient>, method: MergedMethod): Promise<unknown> {
    const { principal } = call.caller.caller;
    const places = withOwn(principal, await parts.routes.findJobs(principal, parts.nodeIds));
    const { decision } = await parts.decide(method, principal, NOTHING);
    if (decision.kind === 'refuse') throw refusal(decision);
    if (decision.kind === 'forward') {
      const { candidates } = decision;
      const chosen = { nodeId: candidates[0]?.target ?? '', owner: principal.id };
      const others = places.filter(({ nodeId, owner }) => nodeId !== chosen.nodeId || owner !== principal.id);
      if (others.length === 0) {
        return parts.send({ call, method, candidates, owner: principal.id, about: NOTHING, accepted: () => undefined });
      }
      places.splice(0, places.length, chosen, ...others);
    }
    return parts.mergeJobs(call, method, places, () => dispatch(call));
  }

  async function go(
    call: MethodCall<BridgeClient>,
    method: string,
    about: CallNames,
    letNext: () => void,
  ): Promise<unknown> {
    const { decision, owner, isSettled } = await parts.decide(method, call.caller.caller.principal, about);
    if (decision.kind === 'refuse') throw refusal(decision);
    if (decision.kind === 'forward') {
      requireMay(call.caller.caller.principal, method, owner);
      // A call that may create something stores a known place again, so that a call that came before cannot take it back now.
      const binds = isSettled && about.binds === 'after' ? 'never' : about.binds;
      const { candidates } = decision;
      return parts.send({ call, method, candidates, owner, about: { ...about, binds }, accepted: letNext });
    }
    // From here on the sessions themselves keep the order.
    const answer = dispatch(call);
    letNext();
    return answer;
  }

  /** A thread may have sessions on several nodes and here. */
  async function toThread(call: MethodCall<BridgeClient>, method: string, about: CallNames): Promise<unknown> {
    const places = await parts.routes.findThread(call.caller.caller.principal, about.threadId);
    if (places.length === 0) return go(call, method, about, () => undefined);
    const calls = places.map(async ({ nodeId, owner }) => {
      const candidate = parts.candidate(nodeId);
      if (candidate === undefined) throw unknownNode(nodeId);
      requireMay(call.caller.caller.principal, method, owner);
      return parts.send({ call, method, candidates: [candidate], owner, about, accepted: () => undefined });
    });
    const outcomes = await Promise.allSettled([...calls, dispatch(call)]);
    const failed = outcomes.find(({ status }) => status === 'rejected');
    if (failed?.status === 'rejected') throw failed.reason;
    return { accepted: true };
  }
}

/** Adds the caller to the nodes with jobs of others: a node that knows the same people returns those of all owners that the caller sees. */
function withOwn({ id, credential }: Principal, places: readonly Place[]): Place[] {
  if (credential === undefined) return [...places];
  const nodeIds = new Set(places.map(({ nodeId }) => nodeId));
  return [...[...nodeIds].map((nodeId) => ({ nodeId, owner: id })), ...places.filter(({ owner }) => owner !== id)];
}

export function refusal({ code, reason }: Refusal): AppError {
  return new AppError(code, { reason, outcome: 'not_started' });
}

function unknownNode(nodeId: string): AppError {
  const reason = `node "${nodeId}" is not known here`;
  return new AppError('TASK_FORWARD_PEER_UNKNOWN', { reason, outcome: 'not_started' });
}

/** Sends calls about the same thing one after the other, in the order in which they came. */
interface CallOrder {
  /** Runs `work` when the calls before it have ended or have called `letNext`. */
  run<Result>(name: string, work: (letNext: () => void) => Promise<Result>): Promise<Result>;
}

/**
 * Each forwarded call has a connection of its own, on which it could overtake the previous call: a message immediately after
 * a start would not find its session.
 */
export function createCallOrder(): CallOrder {
  const last = new Map<string, Promise<void>>();
  return {
    async run(name, work) {
      const before = last.get(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      last.set(name, promise);
      const letNext = (): void => {
        resolve();
        if (last.get(name) === promise) last.delete(name);
      };
      try {
        await before;
        return await work(letNext);
      } finally {
        letNext();
      }
    },
  };
}
