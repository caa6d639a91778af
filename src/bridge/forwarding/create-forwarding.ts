import type { LookupFunction } from 'node:net';
import { withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { PersonTokens, Principal } from '../../platform/identity/principal.ts';
import type { Dispatch, MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { BridgeCaller } from '../access.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { type ArtifactLinks, relinkArtifacts } from '../artifacts/artifact-links.ts';
import type { Attachments } from '../attachments/create-attachments.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { MAIN } from '../principal.ts';
import { SETTLE_MS, type SessionsOptions } from '../sessions/create-sessions.ts';
import type { BridgeGroups } from '../settings.ts';
import type { BridgeSchema } from '../storage/bridge-schema.ts';
import { createSessionRouteStore } from '../storage/instance-and-route-stores.ts';
import { createSessionStore } from '../storage/session-store.ts';
import { createCallPeer, failed, requestPeerFile } from './call-node.ts';
import {
  buildNodeMap,
  decideForward,
  type ForwardCandidate,
  type ForwardQuestion,
  refuseBeyondLimit,
} from './decide-forward.ts';
import { checkEndpointNames } from './endpoints.ts';
import { createForwardCall, createOnwardHeaders, type ForwardLimits, resumeHeaders } from './forward-call.ts';
import { createForwardingDispatch, type PlacedDecision, refusal } from './forwarding-dispatch.ts';
import { createMergedJobs } from './merged-jobs.ts';
import { createNodeHealth, createNodeReports, type NodeReports, nodeControls } from './node-health.ts';
import { createFindPlace, createSessionRoutes, type Place, readCallNames } from './session-routes.ts';
import {
  createFollowPeer,
  createSessionFollowing,
  createUpdateRelay,
  type SessionFollowing,
  type SessionFollowingParts,
} from './update-relay.ts';

/** Forwards calls to other bridges. */
export interface Forwarding {
  /** Forwards calls that belong to other nodes, and passes all others to `dispatch`. */
  wrap(dispatch: Dispatch<BridgeClient>): Dispatch<BridgeClient>;
  /** Lets connections follow sessions of other nodes too. */
  following(sessions: SessionFollowingParts['sessions']): SessionFollowing;
  /** Requests a file of a forwarded session from a node, by the link that the node gave. */
  download(nodeId: string, path: string, signal: AbortSignal): Promise<RelayedFile>;
  readonly nodes: NodeReports;
  readonly controls: readonly MethodRow<undefined>[];
  reload(settings: BridgeGroups): void;
  /** Refuses new turns; resolves when the calls in flight have ended, or after a timeout. */
  settle(): Promise<void>;
  stop(): Promise<void>;
}

export interface ForwardingOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly settings: BridgeGroups;
  readonly database: Database<BridgeSchema>;
  /** Signs links that lead to files of other nodes. */
  readonly links: Pick<ArtifactLinks, 'relay'>;
  /** The version of the contract that this bridge keeps. */
  readonly contract: string;
  /** Puts files that were uploaded here into the params of a call, because the other node does not have them. */
  readonly withFiles: Attachments['inCall'];
  /** Tells other nodes who the caller is. Undefined: calls carry no person. */
  readonly personTokens?: PersonTokens | undefined;
  readonly lookup?: LookupFunction | undefined;
  /** How long forwarded calls may go on during a drain, as turns may. Undefined: 25 seconds. */
  readonly settleMs?: SessionsOptions['settleMs'];
  readonly limits?: Partial<ForwardingLimits> | undefined;
}

export interface ForwardingLimits extends ForwardLimits {
  /** The longest silence within a response. */
  readonly idleMs: number;
  /** The longest silence of a node whose session is followed; it pings every thirty seconds. */
  readonly followIdleMs: number;
  /** The pause between two probes of a node that is down. */
  readonly probeMs: number;
}

const LIMITS: ForwardingLimits = {
  connectMs: 4_500,
  turnHeadersMs: 30_000,
  headersMs: 120_000,
  idleMs: 45_000,
  followIdleMs: 75_000,
  probeMs: 5_000,
};
const PROBE_HEADERS_MS = 5_000;
/** For the jobs of one node, in a list that has those of others too. */
const REPORT_HEADERS_MS = 10_000;
const NEW_WORK: ReadonlySet<string> = new Set(['session.start', 'session.message', 'app.jobs.submit']);
const DEFAULT_PATH = '/acp/rpc';
/** For calls that are not made for a person. */
const NOBODY = { person: '', team: '' };

export async function createForwarding(options: ForwardingOptions): Promise<Forwarding> {
  const { database, contract, clock, logger, lookup } = options;
  const { distributed } = options.settings;
  const limits = { ...LIMITS, ...options.limits };
  await checkEndpointNames(distributed.nodes, clock, lookup);
  const map = buildNodeMap(distributed);
  const ended = new AbortController();
  const underWay = new Set<Promise<unknown>>();
  const choices = new Map<number, number>();
  let token = tokenOf(options.settings);
  let isDraining = false;

  const routes = createSessionRoutes({
    store: createSessionRouteStore(database),
    clock,
    onError: (error) => logger.warn({ err: error }, 'routes of forwarded sessions could not be stored'),
  });
  const findPlace = createFindPlace({ localId: map.localId, routes, sessions: createSessionStore(database) });
  const onwardHeaders = createOnwardHeaders({ localId: map.localId, contract, token: () => token });
  const relay = createUpdateRelay(clock);
  const callPeer = createCallPeer({ clock, lookup, idleMs: limits.idleMs });
  const health = createNodeHealth({ clock, probeMs: limits.probeMs, probe });
  const forwardCall = createForwardCall({
    callPeer,
    routes,
    health,
    relay,
    clock,
    limits,
    links: options.links,
    candidate,
    onFailure: (failure) => logger.warn(failure, 'a call could not be forwarded'),
  });

  function candidate(target: string): ForwardCandidate | undefined {
    const nextHop = map.others.get(map.nextHopOf(target));
    return nextHop === undefined ? undefined : { target, nextHop };
  }

  const mergeJobs = createMergedJobs({
    localId: map.localId,
    downReason: health.reasonOf,
    async ask(call, method, { nodeId: target, owner }) {
      const nextHop = candidate(target)?.nextHop;
      if (nextHop === undefined) return failed('the way to it is not known here', 'not_started');
      const { principal, forwarded: incoming, hop } = call.caller.caller;
      checkHop(call.caller.caller);
      // With the token of the caller, a node returns the jobs of all owners that the caller sees: it is sent with the caller's own name only.
      const person = owner === principal.id ? await personOf(call.caller.caller) : NOBODY;
      const answer = await callPeer(
        {
          ...simpleCall(
            nextHop.endpoint,
            onwardHeaders({ target, owner, ...person, incoming, hop, requestId: call.requestId }),
          ),
          method,
          params: call.params,
          headersMs: Math.min(limits.headersMs, REPORT_HEADERS_MS),
        },
        ended.signal,
      );
      if (answer.kind === 'result') {
        relinkArtifacts(answer.result, (path) => options.links.relay(`node.${nextHop.id}`, path));
      }
      if (answer.kind !== 'failed') health.markUp(target);
      else if (answer.isDown) health.markDown(target, answer.reason);
      return answer;
    },
  });

  /** The members of a call that binds no session and ignores updates. */
  function simpleCall(endpoint: string, headers: Readonly<Record<string, string>>) {
    return {
      endpoint,
      path: DEFAULT_PATH,
      headers,
      id: 'report',
      connectMs: limits.connectMs,
      beforeSend: async () => undefined,
      accepted: () => undefined,
      notified: async () => undefined,
    };
  }

  /** Probes a node that was down, by the same route as a call. */
  async function probe(target: string): Promise<boolean> {
    const nextHop = candidate(target)?.nextHop;
    if (nextHop === undefined) return false;
    const answer = await callPeer(
      {
        ...simpleCall(
          nextHop.endpoint,
          onwardHeaders({ target, owner: MAIN.id, ...NOBODY, incoming: undefined, requestId: '' }),
        ),
        method: 'acp.capabilities',
        params: {},
        headersMs: PROBE_HEADERS_MS,
      },
      ended.signal,
    );
    return answer.kind !== 'failed';
  }

  function decideFor(method: string, principal: Principal, found: Place | undefined): PlacedDecision {
    const decision = decideForward({
      method,
      settings: distributed,
      map,
      incoming: undefined,
      livesAt: found?.nodeId,
      isUp: health.isUp,
      choicesOf: (rule) => choices.get(rule) ?? 0,
    });
    return { decision, owner: found?.owner ?? principal.id, isSettled: found !== undefined };
  }

  function incomingQuestion(method: string): Omit<ForwardQuestion, 'incoming'> {
    return { method, settings: distributed, map, livesAt: undefined, isUp: health.isUp, choicesOf: () => 0 };
  }

  function wrap(dispatch: Dispatch<BridgeClient>): Dispatch<BridgeClient> {
    const { task_forward_peer_id: peer, nodes, forwarding } = distributed;
    const canReject = forwarding.default_action === 'reject';
    return createForwardingDispatch(
      {
        isActive: peer !== '' || nodes.length > 0 || forwarding.rules.length > 0 || canReject,
        canonicalName: (method) => canonicalName(method, options.settings.bridge.method_prefix_aliases),
        async decide(method, principal, about) {
          const placed = decideFor(method, principal, await findPlace(principal, about));
          const { decision } = placed;
          // No await in between, because the next decision must see this one.
          if (decision.kind === 'forward' && decision.rule !== undefined) {
            choices.set(decision.rule, (choices.get(decision.rule) ?? 0) + 1);
          }
          return placed;
        },
        decideIncoming: (method, incoming) => decideForward({ ...incomingQuestion(method), incoming }),
        candidate,
        routes,
        nodeIds: [...map.others.keys()],
        mergeJobs,
        send(outgoing) {
          if (isDraining && NEW_WORK.has(outgoing.method)) throw new AppError('SHUTTING_DOWN');
          const { call, owner } = outgoing;
          const { principal, forwarded, hop } = call.caller.caller;
          checkHop(call.caller.caller);
          const send = async () => {
            const person = await personOf(call.caller.caller);
            return forwardCall(
              {
                ...outgoing,
                params: await options.withFiles(principal.id, call.params),
                path: forwarded?.path ?? DEFAULT_PATH,
                headersFor: (target) => ({
                  ...resumeHeaders(call.caller),
                  ...onwardHeaders({ target, owner, ...person, incoming: forwarded, hop, requestId: call.requestId }),
                }),
              },
              ended.signal,
            );
          };
          const sent = send();
          const noted = sent.catch(() => undefined).finally(() => underWay.delete(noted));
          underWay.add(noted);
          return sent;
        },
        logReceived: ({ method, requestId }, { source, target, hop, trace }) =>
          logger.debug({ method, requestId, source, target, hop, trace }, 'a call came from another bridge'),
      },
      dispatch,
    );
  }

  /**
   * A token of the caller, and the team that they work for, for a node that knows the same people; empty for static tokens,
   * and for what another node has sent.
   */
  async function personOf({ principal, forwarded }: BridgeCaller): Promise<typeof NOBODY> {
    if (forwarded !== undefined || principal.credential === undefined) return NOBODY;
    // The call may have waited for others since the caller was let in.
    if (!principal.credential.isLive()) throw new AppError('UNAUTHORIZED');
    const person = (await options.personTokens?.issue(principal.member ?? principal)) ?? '';
    return { person, team: person === '' ? '' : (principal.team ?? '') };
  }

  /** Called before anything is sent to another node, for every way of sending. */
  function checkHop({ forwarded, hop }: BridgeCaller): void {
    const beyond = refuseBeyondLimit(forwarded?.hop ?? hop ?? 0, distributed);
    if (beyond !== undefined) throw refusal(beyond);
  }

  async function followedPlace(caller: BridgeCaller, sessionId: string) {
    const { principal, forwarded, hop } = caller;
    const found =
      forwarded === undefined
        ? await findPlace(principal, { names: [{ kind: 'session', name: sessionId }], makes: false })
        : undefined;
    const decision =
      forwarded === undefined
        ? undefined
        : decideForward({ ...incomingQuestion('session.message'), incoming: forwarded });
    if (decision?.kind === 'refuse') throw new AppError(decision.code, { reason: decision.reason });
    const target = decision?.kind === 'forward' ? forwarded?.target : found?.nodeId;
    if (target === undefined || target === map.localId) return undefined;
    const to = candidate(target);
    if (to === undefined) return undefined;
    checkHop(caller);
    const owner = found?.owner ?? principal.id;
    const person = await personOf(caller);
    const headers = onwardHeaders({ target, owner, ...person, incoming: forwarded, hop, requestId: '' });
    return { candidate: to, owner, headers };
  }

  const nodes = createNodeReports({
    settings: distributed,
    map,
    health,
    async decide(method, sessionId) {
      const about = readCallNames(method, { sessionId: sessionId ?? 'a session that is not known' });
      const found = sessionId === undefined ? undefined : await findPlace(MAIN, about);
      return decideFor(method, MAIN, found).decision;
    },
  });

  return {
    wrap,
    following: (orchestrator) =>
      createSessionFollowing({
        sessions: orchestrator,
        followPeer: createFollowPeer({ clock, lookup, connectMs: limits.connectMs, idleMs: limits.followIdleMs }),
        relay,
        placeOf: followedPlace,
        onPlaced: routes.onBound,
      }),
    async download(nodeId, path, signal) {
      const node = map.others.get(nodeId);
      if (node === undefined) throw new AppError('NOT_FOUND');
      const headers = onwardHeaders({
        ...{ target: nodeId, owner: MAIN.id, ...NOBODY, incoming: undefined, requestId: '' },
      });
      return requestPeerFile({ nodeId, url: `${node.endpoint}${path}`, headers, signal }, { clock, lookup, ...limits });
    },
    nodes,
    controls: nodeControls(nodes),
    reload(next) {
      token = tokenOf(next);
    },
    async settle() {
      isDraining = true;
      await withinTime(clock, options.settleMs?.() ?? SETTLE_MS, Promise.all(underWay), () => undefined);
    },
    async stop() {
      ended.abort();
      health.stop();
      await Promise.all(underWay);
      await routes.stop();
    },
  };
}

/** The token for other nodes: one of its own, else that of this bridge. */
function tokenOf({ bridge, distributed }: BridgeGroups): string {
  return distributed.task_forward_token || bridge.auth_token;
}

/** Replaces an alias prefix by `app`, because only this bridge knows its aliases. */
function canonicalName(method: string, aliases: readonly string[]): string {
  const alias = aliases.find((one) => method.startsWith(`${one}.`));
  return alias === undefined ? method : `app${method.slice(alias.length)}`;
}
