import { type Static, Type } from 'typebox';

/** `GET /api/ping`: the release that runs here. Unknown members are empty strings. */
export const Ping = Type.Object({
  status: Type.Literal('ok'),
  version: Type.String(),
  contract: Type.String({ description: 'Version of the contract that this release serves.' }),
  commit: Type.String(),
  buildDate: Type.String(),
  image: Type.String(),
  tag: Type.String(),
});

export type Ping = Static<typeof Ping>;

/** Every refusal of the bridge, on HTTP and in answers. */
export const RpcError = Type.Object({
  jsonrpc: Type.Literal('2.0'),
  id: Type.Union([Type.String(), Type.Number(), Type.Null()]),
  error: Type.Object({
    code: Type.Integer(),
    message: Type.String(),
    data: Type.Object({ code: Type.String({ description: 'A stable word such as UNAUTHORIZED.' }) }),
  }),
  ok: Type.Literal(false),
  type: Type.Literal('res'),
  payload: Type.Null(),
  seq: Type.Integer(),
});

/** What the bridge can do, and which agents and gateways stand behind it. */
export const AgentCategory = Type.Union([Type.Literal('native'), Type.Literal('protocol-adapter')]);

export const ProviderEntry = Type.Object({
  providerId: Type.String({ description: 'An opaque id. Apps read it here and do not hard-code it.' }),
  label: Type.String(),
  targets: Type.Array(Type.Literal('agent')),
  category: AgentCategory,
  enabled: Type.Boolean({ description: 'Whether it can be used now.' }),
  unavailableReason: Type.String({ description: 'Empty while it can be used.' }),
  version: Type.String({ description: 'Empty while unknown.' }),
});

const GatewayProviderEntry = Type.Object({
  providerId: Type.String(),
  label: Type.String(),
  targets: Type.Array(Type.Literal('gateway')),
  enabled: Type.Boolean(),
  unavailableReason: Type.String(),
  version: Type.String(),
});

const ProbeEntry = Type.Object({
  providerId: Type.String(),
  available: Type.Boolean(),
  status: Type.String({ description: '`ok`, `not_installed`, `not_configured` or `failed: <short>`.' }),
});

export const Capabilities = Type.Object({
  singleAgent: Type.Boolean({ description: 'Single-agent sessions are served.' }),
  multiAgent: Type.Boolean({ description: 'Multi-agent runs are served.' }),
  availableExecutionTargets: Type.Array(Type.Union([Type.Literal('agent'), Type.Literal('gateway')])),
  providerCatalog: Type.Array(ProviderEntry),
  gatewayProviders: Type.Array(GatewayProviderEntry),
  providerProbeSummary: Type.Array(ProbeEntry),
});

/** `GET /api/bridge/agents`: the agents of the bridge, and what can be done with their sessions. */
export const AgentList = Type.Object({
  agents: Type.Array(
    Type.Object({
      providerId: Type.String(),
      label: Type.String(),
      category: AgentCategory,
      state: Type.String({
        description: '`ok`, `not_installed`, `not_logged_in`, `not_configured` or `failed: <short>`.',
      }),
      advice: Type.String({ description: 'What to do about a state that is not `ok`.' }),
      version: Type.String({ description: 'Empty while unknown.' }),
      model: Type.String({ description: 'Of an agent that has one default model.' }),
      modes: Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), {
        description: 'Of agents with fixed modes; others offer their modes in each session.',
      }),
      steer: Type.Enum(['yes', 'no'], { description: 'Whether a running turn accepts messages.' }),
      fork: Type.Enum(['yes', 'offered', 'no'], {
        description: 'Whether sessions can be copied. `offered`: if the program of the agent supports it.',
      }),
      forkFrom: Type.Enum(['any_turn', 'last_turn'], {
        description: 'Up to which turn a session can be copied, if it can be copied.',
      }),
    }),
  ),
});

/** `POST /api/bridge/agents/:providerId/test`: the result of one small turn. */
export const AgentTest = Type.Object({
  providerId: Type.String(),
  status: Type.Enum(['completed', 'failed', 'cancelled', 'unavailable']),
  output: Type.String({ description: 'At most 1,000 characters.' }),
  error: Type.String({ description: 'Empty when the turn was completed.' }),
  code: Type.String({ description: 'As `code` of `session.start`; empty when there is none.' }),
  firstMs: Type.Integer({ description: 'Until the first text.' }),
  durationMs: Type.Integer({ description: 'Of the whole turn.' }),
});

/** `POST /api/bridge/agents/:providerId/install`. */
export const InstalledAgent = Type.Object({
  providerId: Type.String(),
  version: Type.String(),
  offered: Type.Boolean({ description: 'Whether the server offers it now; otherwise after a restart.' }),
});

/** `POST /api/bridge/agents/:providerId/login`. */
export const LoginRequest = Type.Object(
  {
    methodId: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 200,
        description: 'One of `methods`. Absent: the only one that needs no terminal, if there is exactly one.',
      }),
    ),
  },
  { additionalProperties: false },
);

export const AgentLogin = Type.Object({
  providerId: Type.String(),
  loggedIn: Type.Boolean({ description: 'Whether the agent reports that it can be used now.' }),
  methods: Type.Array(
    Type.Object({
      id: Type.String(),
      name: Type.String(),
      description: Type.String(),
      terminal: Type.Boolean({ description: 'Whether it must be run in a terminal.' }),
    }),
    { description: 'The ways to log in that the agent offers.' },
  ),
  command: Type.String({
    description: 'The command to run in a terminal, as the user that runs the server; empty if none is known.',
  }),
  text: Type.String({ description: 'The outcome, or what to do.' }),
});

export type AgentTest = Static<typeof AgentTest>;
export type InstalledAgent = Static<typeof InstalledAgent>;
export type AgentLogin = Static<typeof AgentLogin>;
export type AgentList = Static<typeof AgentList>;
export type AgentEntry = AgentList['agents'][number];
export type AgentCategory = Static<typeof AgentCategory>;
export type Capabilities = Static<typeof Capabilities>;
export type ProviderEntry = Static<typeof ProviderEntry>;

/** What happened on the bridge, for webhooks. */
export interface BridgeEvent {
  readonly event: 'session.needs_input' | 'job.started';
  readonly data: Readonly<Record<string, string | number>>;
}

const RUNNER_NAME = '^[a-z0-9][a-z0-9._-]{0,62}$';
/** Of names and labels of runners. */
export const RunnerLabel = Type.String({ pattern: RUNNER_NAME });
const Runner = Type.Object({
  id: Type.String(),
  name: Type.String(),
  labels: Type.Array(Type.String()),
  state: Type.Enum(['connected', 'leaving', 'away'], { description: '`leaving`: it is being stopped.' }),
  instance: Type.String({ description: 'The instance that it is connected to; empty while it is away.' }),
  version: Type.String(),
  host: Type.String({ description: 'The name of its machine.' }),
  slots: Type.Integer({ description: 'Turns that it runs at the same time.' }),
  turns: Type.Integer({ description: 'Turns that run on it.' }),
  once: Type.Optional(
    Type.Enum(['free', 'taken'], {
      description: 'For a runner that takes only one session: whether it has one. `taken`: it gets no other session.',
    }),
  ),
  agents: Type.Array(Type.Object({ id: Type.String(), state: Type.String(), version: Type.String() })),
});
export const RunnerList = Type.Array(Runner, { description: 'Machines that run agents for the instances.' });
export type RunnerFacts = Static<typeof Runner>;

/** The results of the methods for commands. */
export const runnerControlResults = {
  'runners.create': Type.Object({ id: Type.String(), name: Type.String(), key: Type.String() }),
  'runners.list': Type.Object({ runners: RunnerList }),
  'runners.revoke': Type.Object({}),
};
