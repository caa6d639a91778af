import { type Static, Type } from 'typebox';

/** The control plane of the gateway: contract/bridge 8. What apps say about address, token or device is ignored. */
const ignored = Type.Optional(Type.Unknown({ description: 'Ignored: the bridge owns address, token and device.' }));

export const GatewayConnectParams = Type.Object({
  runtimeId: Type.Optional(Type.String({ maxLength: 256 })),
  gatewayProviderId: Type.Optional(
    Type.String({ maxLength: 256, description: 'The configured gateway unless given.' }),
  ),
  clientId: ignored,
  locale: ignored,
  userAgent: ignored,
  deviceInfo: ignored,
  packageInfo: ignored,
  auth: ignored,
});

export const GatewaySnapshot = Type.Object({
  status: Type.Enum(['offline', 'connecting', 'connected', 'error']),
  mode: Type.Enum(['unconfigured', 'local', 'remote']),
  statusText: Type.String(),
  serverName: Type.String(),
  remoteAddress: Type.String({ description: 'Host and port of the gateway.' }),
  mainSessionKey: Type.String(),
  lastError: Type.String(),
  lastErrorCode: Type.String(),
  lastConnectedAtMs: Type.Union([Type.Integer(), Type.Null()]),
  deviceId: Type.String(),
  authRole: Type.String(),
  authScopes: Type.Array(Type.String()),
  connectAuthMode: Type.Enum(['none', 'shared-token']),
  hasSharedAuth: Type.Boolean(),
  hasDeviceToken: Type.Boolean(),
});

const GatewayError = Type.Union([Type.Object({ code: Type.String(), message: Type.String() }), Type.Null()]);

export const GatewayConnectResult = Type.Object({
  ok: Type.Boolean(),
  snapshot: GatewaySnapshot,
  auth: Type.Object({ role: Type.String(), scopes: Type.Array(Type.String()) }),
  returnedDeviceToken: Type.String({ description: 'Always empty: tokens stay with the bridge.' }),
  error: GatewayError,
});

export const GatewayRequestParams = Type.Object({
  runtimeId: Type.Optional(Type.String({ maxLength: 256 })),
  method: Type.String({ minLength: 1, maxLength: 256 }),
  params: Type.Optional(Type.Unknown()),
  timeoutMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 600_000, description: '15000 unless given.' })),
});

export const GatewayRequestResult = Type.Object({
  ok: Type.Boolean(),
  payload: Type.Unknown(),
  error: GatewayError,
});

export const GatewayDisconnectParams = Type.Object({ runtimeId: Type.Optional(Type.String({ maxLength: 256 })) });

export type GatewaySnapshot = Static<typeof GatewaySnapshot>;
export type GatewayConnectResult = Static<typeof GatewayConnectResult>;
export type GatewayRequestResult = Static<typeof GatewayRequestResult>;

/** Spec/bridge 4.5, contract/bridge 8. */
export const ToolsInvokeParams = Type.Object({
  tool: Type.Optional(Type.String({ maxLength: 256, description: 'Needed; `message` for example.' })),
  action: Type.Optional(Type.String({ maxLength: 256, description: '`send` for example.' })),
  args: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});

export const ToolsInvokeResult = Type.Object({}, { description: 'What the tool answered, unchanged.' });
