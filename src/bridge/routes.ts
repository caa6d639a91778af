import { AppError } from '../platform/errors/app-error.ts';
import { anyone, type Route, type UpgradeRoute } from '../platform/http/surface.ts';

import type { BridgeAccess, BridgeCaller } from './access.ts';
import { artifactRoute, type DownloadParts } from './artifacts/artifact-route.ts';
import { Ping } from './contract/surface.ts';
import type { RpcOverHttp } from './rpc-over-http.ts';
import type { RpcOverSocket } from './rpc-over-socket.ts';

export interface RouteParts {
  readonly access: BridgeAccess;
  readonly ping: Ping;
  readonly overHttp: RpcOverHttp;
  readonly overSocket: RpcOverSocket;
  readonly messageBytes: number;
  readonly gatewayProviderId: string;
  readonly downloads: DownloadParts;
}

/** THE TABLE of paths (spec/bridge 4.1): each row names its guard. */
export function bridgeRoutes(parts: RouteParts): readonly Route<BridgeCaller>[] {
  const { access, ping, overHttp, messageBytes, gatewayProviderId, downloads } = parts;
  return [
    {
      method: 'GET',
      path: '/api/ping',
      guard: access.withToken,
      summary: 'Which release runs here.',
      schema: { response: { 200: Ping } },
      handle: () => ping,
    },
    {
      method: 'POST',
      path: '/acp/rpc',
      guard: access.fromAppOrNode,
      summary: 'JSON-RPC over HTTP; with "Accept: text/event-stream" as a stream of events.',
      body: 'bytes',
      bodyLimit: messageBytes,
      handle: overHttp.answer,
    },
    {
      method: 'POST',
      path: '/gateway/:gatewayProviderId',
      guard: access.fromNode,
      summary: 'JSON-RPC that another bridge has forwarded to a gateway of this one.',
      unlisted: true,
      body: 'bytes',
      bodyLimit: messageBytes,
      handle(call) {
        if (call.params.gatewayProviderId !== gatewayProviderId) throw new AppError('NOT_FOUND');
        return overHttp.answer(call);
      },
    },
    artifactRoute(downloads),
    {
      method: 'OPTIONS',
      path: '/acp/rpc',
      guard: anyone,
      summary: 'CORS preflight.',
      handle: overHttp.preflight,
    },
  ];
}

export function bridgeUpgrades({ access, overSocket }: RouteParts): readonly UpgradeRoute<BridgeCaller>[] {
  return [
    {
      path: '/acp',
      guard: access.fromAppOrNode,
      summary: 'JSON-RPC over WebSocket.',
      accept: overSocket.accept,
      stillAllowed: access.stillAllowed,
    },
  ];
}
