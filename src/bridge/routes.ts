import { AppError } from '../platform/errors/app-error.ts';
import { anyone, type Operation, type Route, defineRoute as row, type UpgradeRoute } from '../platform/http/surface.ts';
import type { BridgeAccess, BridgeCaller } from './access.ts';
import { createDownload, type DownloadParts } from './artifacts/artifact-route.ts';
import { Ping } from './contract/surface.ts';
import { WorkbenchError } from './contract/workbench.ts';
import type { Relay } from './instances/create-relay.ts';
import type { RpcOverHttp } from './rpc-over-http.ts';
import type { RpcOverSocket } from './rpc-over-socket.ts';
import type { LiveSocket } from './workbench/live-socket.ts';
import { type WorkbenchParts, workbenchRoutes } from './workbench/workbench-routes.ts';

export interface RouteParts {
  readonly access: BridgeAccess;
  readonly ping: Ping;
  readonly overHttp: RpcOverHttp;
  readonly overSocket: RpcOverSocket;
  readonly messageBytes: number;
  readonly gatewayProviderId: string;
  readonly downloads: DownloadParts;
  readonly workbench: WorkbenchParts;
  readonly live: LiveSocket;
  /** Undefined: no other instance shares the database. */
  readonly relay: Relay | undefined;
  readonly stalledAfterMs: number;
  onUnexpectedError(error: unknown, requestId: string): void;
}

const op = {
  ping: { summary: 'Returns the version that runs here.', response: { 200: Ping } },
  call: { summary: 'JSON-RPC over HTTP; with "Accept: text/event-stream" as a stream of events.', raw: true },
  callGateway: {
    summary: 'JSON-RPC that another bridge has forwarded to a gateway of this one.',
    raw: true,
    unlisted: true,
  },
  download: { summary: 'Downloads a file that a turn produced, by the link in its result.' },
  preflight: { summary: 'CORS preflight.' },
} as const satisfies Readonly<Record<string, Operation>>;

/** THE TABLE of the bridge: path, guard, operation, handler. */
export function bridgeRoutes(parts: RouteParts): readonly Route[] {
  const { access, ping, overHttp, messageBytes, gatewayProviderId, downloads } = parts;
  const own = [
    row('GET /api/ping', access.withToken, op.ping, () => ping),
    row('POST /acp/rpc', access.fromAppOrNode, op.call, overHttp.answer),
    row('POST /gateway/:gatewayProviderId', access.fromNode, op.callGateway, (call) => {
      if (call.params.gatewayProviderId !== gatewayProviderId) throw new AppError('NOT_FOUND');
      return overHttp.answer(call);
    }),
    row('GET /artifacts/*', anyone, op.download, createDownload(downloads)),
    row('OPTIONS /acp/rpc', anyone, op.preflight, overHttp.preflight),
  ].map((route) => (route.body === 'bytes' ? { ...route, bodyLimit: messageBytes } : route));
  const second = workbenchRoutes(access, parts.workbench);
  if (parts.relay === undefined) return [...own, ...second];
  return [...own, ...parts.relay.wrapRows(second, SERVED_BY_OWNER), ...parts.relay.routes(parts)];
}

/** Rows that need the agent, the files or the memory of the instance that has the session. */
const SERVED_BY_OWNER: ReadonlySet<string> = new Set([
  'PATCH /api/bridge/sessions/:sessionId',
  'DELETE /api/bridge/sessions/:sessionId/turns/:turnId',
  'GET /api/bridge/sessions/:sessionId/files',
  'GET /api/bridge/sessions/:sessionId/changes',
  'GET /api/bridge/sessions/:sessionId/changes/diff',
  'POST /api/bridge/sessions/:sessionId/undo',
  'POST /api/bridge/sessions/:sessionId/steer',
  'POST /api/bridge/sessions/:sessionId/fork',
  'POST /api/bridge/sessions/:sessionId/merge',
]);

export function bridgeUpgrades({ access, overSocket, live }: RouteParts): readonly UpgradeRoute<BridgeCaller>[] {
  return [
    {
      path: '/acp',
      guard: access.fromAppOrNode,
      summary: 'JSON-RPC over WebSocket.',
      accept: overSocket.accept,
      stillAllowed: access.stillAllowed,
      onRevoked: access.onRevoked,
    },
    {
      path: '/api/bridge/live',
      guard: access.workbench,
      error: WorkbenchError,
      summary:
        'JSON-RPC over WebSocket: `watch` reports which sessions change, `follow` sends the updates of a session.',
      accept: live.accept,
      stillAllowed: access.stillAllowed,
      onRevoked: access.onRevoked,
    },
  ];
}
