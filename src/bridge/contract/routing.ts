import { type Static, Type } from 'typebox';

/** Routing: what a caller may ask for, and the resolution. */
const words = <const Values extends string[]>(values: [...Values], description: string) =>
  Type.Enum(values, { description });

export const AvailableSkill = Type.Union([
  Type.String(),
  Type.Object({
    id: Type.String(),
    label: Type.Optional(Type.String()),
    description: Type.Optional(Type.String()),
    installed: Type.Optional(Type.Boolean()),
  }),
]);

export const RoutingInput = Type.Object({
  routingMode: Type.Optional(words(['auto', 'explicit', ''], 'Default: `auto`.')),
  explicitExecutionTarget: Type.Optional(
    words(
      ['agent', 'single-agent', 'singleAgent', 'gateway', ''],
      '`gateway` makes it a gateway task; every other value means an agent.',
    ),
  ),
  explicitProviderId: Type.Optional(Type.String({ maxLength: 256, description: 'This agent and no other.' })),
  preferredGatewayProviderId: Type.Optional(
    Type.String({ maxLength: 256, description: 'Required with `explicitExecutionTarget: "gateway"`.' }),
  ),
  explicitModel: Type.Optional(Type.String({ maxLength: 256 })),
  explicitSkills: Type.Optional(Type.Array(Type.String({ maxLength: 256 }), { maxItems: 256 })),
  availableSkills: Type.Optional(Type.Array(AvailableSkill, { maxItems: 4096 })),
});

const Step = Type.Object({
  providerId: Type.Optional(Type.String({ maxLength: 256 })),
  prompt: Type.Optional(Type.String({ description: 'Default: the task. May contain templates such as `{{input}}`.' })),
  outputAs: Type.Optional(
    Type.String({ maxLength: 128, description: 'The name under which later steps can use its output.' }),
  ),
  timeoutMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 86_400_000, description: 'Default: 300000.' })),
  model: Type.Optional(Type.String({ maxLength: 256 })),
});

/** The routing of a turn: with what a multi-agent run needs. */
export const TurnRouting = Type.Object({
  ...RoutingInput.properties,
  orchestrationMode: Type.Optional(
    Type.String({ maxLength: 64, description: '`sequence` (the default), `parallel`, `race` or `conversation`.' }),
  ),
  permissions: Type.Optional(
    words(
      ['ask', 'allow', 'deny'],
      'What happens when the agent asks for permission: `ask` asks a user (`/api/bridge/permissions`), `allow` allows it, `deny` denies it. The rules of the bridge apply first.',
    ),
  ),
  worktree: Type.Optional(
    Type.Union(
      [
        Type.Boolean(),
        Type.Object({
          base: Type.Optional(
            Type.String({
              minLength: 1,
              maxLength: 256,
              description: 'The branch, tag, `HEAD` or full commit id that the worktree begins with.',
            }),
          ),
        }),
      ],
      {
        description:
          'Of `session.start`: the session works in a worktree of the repository that `workingDirectory` names, on the branch `trestle/<session>`; each step of a `parallel` or `race` run has its own. Without `base`, the checkout must not have uncommitted changes.',
      },
    ),
  ),
  steps: Type.Optional(Type.Array(Step, { maxItems: 64 })),
  participants: Type.Optional(Type.Array(Type.Union([Type.String({ maxLength: 256 }), Step]), { maxItems: 64 })),
  maxTurns: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'Default: one round.' })),
  stopConditions: Type.Optional(Type.Array(Type.String({ maxLength: 1024 }), { maxItems: 64 })),
});

export const RoutingResolution = Type.Object({
  resolvedExecutionTarget: words(['single-agent', 'gateway', 'multi-agent'], 'What kind of run it is.'),
  resolvedProviderId: Type.String({ description: 'Empty if no agent is available, and for gateway tasks.' }),
  providerId: Type.String({ description: 'The same as `resolvedProviderId`.' }),
  resolvedGatewayProviderId: Type.String(),
  resolvedModel: Type.String(),
  resolvedSkills: Type.Array(Type.String()),
  status: words(['available', 'unavailable'], 'Whether the call could run now.'),
  unavailable: Type.Boolean(),
  unavailableCode: Type.Optional(Type.String({ description: '`PROVIDER_UNAVAILABLE` or `GATEWAY_UNAVAILABLE`.' })),
  unavailableMessage: Type.Optional(Type.String()),
  skillResolutionSource: words(['explicit', 'local_match', 'none'], 'Where the skills come from.'),
  needsSkillInstall: Type.Boolean(),
  skillInstallRequestId: Type.String(),
});

export const ResolveParams = Type.Object({
  taskPrompt: Type.Optional(Type.String()),
  workingDirectory: Type.Optional(Type.String()),
  routing: Type.Optional(RoutingInput),
});

export type AvailableSkill = Static<typeof AvailableSkill>;
export type RoutingInput = Static<typeof RoutingInput>;
export type TurnRouting = Static<typeof TurnRouting>;
export type RoutingResolution = Static<typeof RoutingResolution>;

/** The control plane of the gateway. Values of apps for address, token and device are ignored. */
const ignored = Type.Optional(Type.Unknown({ description: 'Ignored: the bridge owns address, token and device.' }));

export const GatewayConnectParams = Type.Object({
  runtimeId: Type.Optional(Type.String({ maxLength: 256 })),
  gatewayProviderId: Type.Optional(Type.String({ maxLength: 256, description: 'Default: the configured gateway.' })),
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
  timeoutMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 600_000, description: 'Default: 15000.' })),
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

/** A call of a tool through the bridge. */
export const ToolsInvokeParams = Type.Object({
  tool: Type.Optional(Type.String({ maxLength: 256, description: 'Required; `message`, for example.' })),
  action: Type.Optional(Type.String({ maxLength: 256, description: '`send` for example.' })),
  args: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});

export const ToolsInvokeResult = Type.Object({}, { description: 'The response of the tool, unchanged.' });
