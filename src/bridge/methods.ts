import { Type } from 'typebox';
import { rawJson } from '../platform/json-rpc/envelope.ts';
import { defineMethod, type MethodCall, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { BridgeClient } from './bridge-client.ts';
import { ResolveParams, RoutingResolution } from './contract/routing.ts';
import { Accepted, SessionName, SessionResult, StartParams, TurnParams } from './contract/session.ts';
import { SessionUpdate } from './contract/session-update.ts';
import { Capabilities } from './contract/surface.ts';
import type { Jobs } from './jobs/create-jobs.ts';
import { jobMethods } from './jobs/job-reports.ts';
import type { RouteRequest } from './routing/resolve-route.ts';
import type { SessionCalls } from './sessions/session-calls.ts';

export interface MethodParts {
  readonly capabilitiesText: () => string;
  readonly sessions: SessionCalls;
  readonly jobs: Pick<Jobs, 'submit' | 'reports'>;
  /** `app.gateway.*` and `app.tools.invoke`. */
  readonly gatewayMethods: readonly MethodRow<BridgeClient>[];
  route(request: RouteRequest): Promise<RoutingResolution>;
  /** Undefined: the whole family is served. */
  readonly only?: ServedMethods | undefined;
}

/** Which methods a bridge serves, by their names, and whom it tells that a call of one was done. */
export interface ServedMethods {
  readonly names: readonly string[];
  done?(name: string): void;
}

/** THE TABLE of what the bridge sends on its own. */
export const bridgeNotifications = [
  {
    name: 'session.update',
    summary: 'Reports what happens in a session that the client uses or follows.',
    params: SessionUpdate,
  },
] as const;

/** What of the family is served. */
export function bridgeMethods(parts: MethodParts): readonly MethodRow<BridgeClient>[] {
  const { only } = parts;
  const rows = familyOf(parts);
  if (only === undefined) return rows;
  return rows
    .filter(({ name }) => only.names.includes(name))
    .map((row) => ({
      ...row,
      async handle(params, call) {
        const result = await row.handle(params, call);
        only.done?.(row.name);
        return result;
      },
    }));
}

/** THE TABLE of the method family: nothing else can be called. */
function familyOf({
  capabilitiesText,
  sessions,
  jobs,
  gatewayMethods,
  route,
}: MethodParts): readonly MethodRow<BridgeClient>[] {
  return [
    {
      name: 'acp.capabilities',
      summary: 'Returns what this bridge can do, and which agents and gateways are available now.',
      params: Type.Object({}),
      result: Capabilities,
      handle: () => rawJson(capabilitiesText()),
    },
    defineMethod({
      name: 'app.routing.resolve',
      summary: 'Returns which agent would do the work, without starting it.',
      params: ResolveParams,
      result: RoutingResolution,
      handle: ({ taskPrompt = '', routing = {} }) =>
        route({ routing, prompt: taskPrompt, sessionAgent: '', continues: false }),
    }),
    defineMethod({
      name: 'session.start',
      summary: 'Starts or restarts a session and runs its first turn.',
      params: StartParams,
      result: SessionResult,
      handle: (params, call: MethodCall<BridgeClient>) => sessions.turn('session.start', params, call),
    }),
    defineMethod({
      name: 'session.message',
      summary: 'Continues a session with one more turn.',
      params: TurnParams,
      result: SessionResult,
      handle: (params, call: MethodCall<BridgeClient>) => sessions.turn('session.message', params, call),
    }),
    defineMethod({
      name: 'session.cancel',
      summary: 'Stops the running and waiting turns of a session, or of all sessions of a thread.',
      params: SessionName,
      result: Accepted,
      handle: sessions.cancel,
    }),
    defineMethod({
      name: 'session.close',
      summary: 'Ends a session, or all sessions of a thread, and removes their state.',
      params: SessionName,
      result: Accepted,
      handle: sessions.close,
    }),
    ...jobMethods(jobs.submit, jobs.reports),
    ...gatewayMethods,
  ];
}
