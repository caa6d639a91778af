import { AppError } from '../platform/errors/app-error.ts';
import type { Owner } from '../platform/identity/owner.ts';
import type { Dispatch, MethodCall } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import { forTeam } from './access.ts';
import type { AgentProvider } from './agents/agent-provider.ts';
import type { BridgeClient } from './bridge-client.ts';
import type { Jobs } from './jobs/create-jobs.ts';
import { isAtWork, isMemberAtWork, onlyFor, requireMay } from './principal.ts';
import type { SessionOrchestrator } from './sessions/session-orchestrator.ts';

/** Lets each call name a team in `team`, because a browser can send no header with a socket, and one socket serves several teams. */
export function withTeams(dispatch: Dispatch<BridgeClient>): Dispatch<BridgeClient> {
  return (call) => {
    const given = Object(call.params) as Readonly<Record<string, unknown>>;
    if (given.team === undefined || Array.isArray(given)) return dispatch(call);
    // Copied only where a team is named: most calls name none, and their params may be large.
    const { team, ...params } = given;
    if (typeof team !== 'string') {
      const message = 'must be a string: the id of a team';
      throw new AppError('INVALID_PARAMS', { reason: `team ${message}`, issues: [{ path: '/team', message }] });
    }
    const { caller } = call.caller;
    const principal = forTeam(caller.principal, team);
    return dispatch(asClient(call, { ...call.caller, caller: { ...caller, principal } }, params));
  };
}

const NAMING_OWNERS: ReadonlySet<string> = new Set(['session.cancel', 'session.close']);

/**
 * Lets a call that ends work name whose work it means, because several owners may have a session of the same name. `owner`
 * stays in the params: another node that knows the same people needs it. One that does not gets the owner in a header instead.
 */
export function withOwners(dispatch: Dispatch<BridgeClient>): Dispatch<BridgeClient> {
  return (call) => {
    const { caller } = call.caller;
    const { owner } = Object(call.params) as Readonly<Record<string, unknown>>;
    const isNode = caller.forwarded !== undefined && caller.principal.credential === undefined;
    // What is not a string is refused by the schema of the method.
    if (typeof owner !== 'string' || isNode || !NAMING_OWNERS.has(call.method)) return dispatch(call);
    requireMay(caller.principal, call.method, owner);
    const principal = onlyFor(caller.principal, owner);
    return dispatch(asClient(call, { ...call.caller, caller: { ...caller, principal } }, call.params));
  };
}

/** The same call of another client. A copy of a call would lose what it makes on first use. */
export function asClient(
  call: MethodCall<BridgeClient>,
  caller: BridgeClient,
  params: unknown,
  method = call.method,
): MethodCall<BridgeClient> {
  return {
    method,
    id: call.id,
    params,
    caller,
    get signal() {
      return call.signal;
    },
    get requestId() {
      return call.requestId;
    },
    notify: (...given) => call.notify(...given),
    accept: () => call.accept(),
  };
}

interface EndWorkOptions {
  readonly orchestrator: Pick<SessionOrchestrator, 'cancelWhere'>;
  readonly jobs: Pick<Jobs, 'endAllOf' | 'endLeft'>;
  readonly providers: ReadonlyMap<string, Pick<AgentProvider, 'endWhere'>>;
  readonly logger: Pick<Logger, 'warn'>;
}

/** Ends what must not go on after a change of an owner: all work of one who may not work, and work for teams that a person has left. */
export function createEndWork({ orchestrator, jobs, providers, logger }: EndWorkOptions): (changed: Owner) => void {
  const endWhere: NonNullable<AgentProvider['endWhere']> = (isMeant) => {
    for (const provider of providers.values()) provider.endWhere?.(isMeant);
  };
  return (changed) => {
    const { id } = changed;
    if (isAtWork(changed)) {
      endWhere(({ owner, member }) => member === id && !isMemberAtWork(changed, owner));
      orchestrator.cancelWhere((owner, { member }) => member?.id === id && !isMemberAtWork(changed, owner));
      jobs.endLeft(changed);
      return;
    }
    endWhere(({ owner, member }) => owner === id || member === id);
    orchestrator.cancelWhere((owner, principal) => [owner, principal.id, principal.member?.id].includes(id));
    jobs
      .endAllOf(id)
      .catch((error: unknown) => logger.warn({ err: error, owner: id }, 'jobs of an owner were not ended'));
  };
}
