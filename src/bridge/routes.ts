import { AppError } from '../platform/errors/app-error.ts';
import { anyone, type Operation, type Route, defineRoute as row, type UpgradeRoute } from '../platform/http/surface.ts';
import type { BridgeAccess, BridgeCaller } from './access.ts';
import { createDownload, type DownloadParts } from './artifacts/artifact-route.ts';
import { Ping } from './contract/surface.ts';
import { WorkbenchError } from './contract/workbench.ts';
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
}

const op = {
  ping: { summary: 'Which release runs here.', response: { 200: Ping } },
  call: { summary: 'JSON-RPC over HTTP; with "Accept: text/event-stream" as a stream of events.', raw: true },
  callGateway: {
    summary: 'JSON-RPC that another bridge has forwarded to a gateway of this one.',
    raw: true,
    unlisted: true,
  },
  download: { summary: 'Downloads a file that a turn produced, by the link in its result.' },
  preflight: { summary: 'CORS preflight.' },
} as const satisfies Readonly<Record<string, Operation>>;

/** THE TABLE of the bridge (spec/bridge 4.1): path, guard, operation, handler. */
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
  return [...own, ...workbenchRoutes(access.workbench, parts.workbench)];
}

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
      summary: 'JSON-RPC over WebSocket: `watch` tells which sessions change, `follow` sends the updates of a session.',
      accept: live.accept,
      stillAllowed: access.stillAllowed,
      onRevoked: access.onRevoked,
    },
  ];
}
