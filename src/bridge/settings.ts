import type { Static } from 'typebox';
import { setting } from '../platform/config/setting.ts';
import { sandboxLimitSettings, sandboxSettings } from './agents/agent-fence.ts';
import { agentProgramSettings } from './agents/agent-models.ts';
import {
  builtinSettings,
  checkpointSettings,
  type jobsSettings,
  mcpServerSettings,
  permissionSettings,
} from './work-settings.ts';

const AGENT_ID = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$';
const AGENT_ID_WORDS = 'letters, digits, dots, dashes and underscores, at most 64';
const VARIABLE = { keyPattern: '^[A-Za-z_][A-Za-z0-9_]*$', keyExpects: 'names of environment variables' };

/** Stands for the address that a page was loaded from, in a list of origins. */
export const OWN_ORIGIN = 'self';

const turns = (fallback: number, description: string, minimum = 1) =>
  setting.integer({ default: fallback, minimum, maximum: 1_000_000, description });
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const bytes = (fallback: number, description: string) =>
  setting.integer({ default: fallback, minimum: 1_048_576, maximum: Number.MAX_SAFE_INTEGER, description });

export const bridgeSettings = setting.group('The bridge: the control plane that apps talk to.', {
  auth_token: setting.token({
    default: '',
    env: 'BRIDGE_AUTH_TOKEN',
    reload: true,
    description: 'Main bearer token. While this and the review token are empty, requests pass without a credential.',
  }),
  review_auth_token: setting.token({
    default: '',
    env: 'BRIDGE_REVIEW_AUTH_TOKEN',
    reload: true,
    emptyClears: true,
    description: 'Temporary second token for review and beta testing; clearing it leaves the main token valid.',
  }),
  allowed_origins: setting.list(setting.origin({ anyPort: true, word: OWN_ORIGIN }), {
    env: 'ACP_ALLOWED_ORIGINS',
    reload: true,
    description:
      'Web origins that may call; `:*` at the end stands for any port. Our own origin is always allowed, and `self` alone allows no other. Empty: `http://localhost:*` and `http://127.0.0.1:*`.',
  }),
  webhook_secret: setting.text({
    default: '',
    env: 'BRIDGE_WEBHOOK_SECRET',
    secret: true,
    reload: true,
    description: 'Signs the webhooks of finished jobs; empty: webhooks are not signed.',
  }),
  app_origin: setting.origin({
    default: '',
    reload: true,
    description: 'Origin of the production app, which is always allowed.',
  }),
  method_prefix_aliases: setting.list(
    setting.text({
      pattern: '^[A-Za-z][A-Za-z0-9_-]{0,63}$',
      expects: 'a word of letters, digits, dashes and underscores',
    }),
    {
      description:
        'Other prefixes for the `app` methods: with `acme`, `acme.jobs.submit` is the same as `app.jobs.submit`.',
    },
  ),
  workspace_roots: setting.list(setting.path({}), {
    description:
      'Folders in which agents may work. Empty: the home directory and the system’s folder for temporary files. A folder that contains the data directory is refused as a working directory unless exactly that folder is listed here.',
  }),
  user_root: setting.path({
    default: '',
    description:
      'The only folder in which agents work for a user or a team: `{user}` (or `{team}`, which means the same) stands for the id. Created when it is first needed. Empty: `~/trestle/{user}`. For the main token, the review token and nodes, agents work in `workspace_roots` instead; of these three, only the main token also reaches the folders of users.',
  }),
  trust_users: setting.flag({
    default: false,
    description:
      'Lets agents work for users whose plan has `bridge: true` even without a sandbox, so that nothing separates these users from each other and from this machine: their agents run as the user of this program and reach what it reaches. Only for users to whom you would give a login on this machine.',
  }),
  strict_params: setting.flag({
    default: false,
    description:
      'Refuse calls with unknown members of `params`, instead of reporting them in `warnings` of the result. A call over HTTP can request this with the header `x-strict-params: true`.',
  }),
  permissions: setting.choice(['allow', 'deny'], {
    default: 'allow',
    description: 'How the bridge answers when an agent asks for permission. `deny` also makes agents read-only.',
  }),
  ...permissionSettings,
  ...mcpServerSettings,
  ...checkpointSettings,
  ...sandboxSettings,
  limits: setting.group('Limits on what each client may use.', {
    message_bytes: setting.integer({
      default: 8_388_608,
      minimum: 1024,
      maximum: 268_435_456,
      description: 'Largest request body and WebSocket message.',
    }),
    calls_per_connection: setting.integer({
      default: 1024,
      minimum: 1,
      maximum: 65_536,
      description: 'Calls in progress on one connection.',
    }),
    connections_per_address: setting.integer({
      default: 20_000,
      minimum: 1,
      maximum: 1_000_000,
      description: 'Open WebSockets from one address.',
    }),
    turns: turns(1024, 'Turns that run at the same time. Further turns wait, and principals take turns.'),
    turns_per_principal: turns(
      256,
      'How many of these may belong to one principal. Keep it below `turns`, to leave room for others.',
    ),
    turns_per_agent: turns(512, 'Turns, and steps of multi-agent runs, that one agent works on at the same time.'),
    waiting_turns: turns(4096, 'Turns that may wait in total; further turns are refused with OVERLOADED.', 0),
    waiting_turns_per_principal: turns(1024, 'How many of these may belong to one principal.', 0),
    stalled_after: setting.duration({
      default: '30s',
      minimum: '1s',
      maximum: '1h',
      description:
        'A client that reads nothing for this long while updates wait for it is disconnected (WebSocket 1013); it can resume from its last update number. A client that reads slowly is not disconnected, however much waits for it.',
    }),
    scratch_bytes: bytes(
      100 * GIB,
      'Maximum total size of the private folders of all sessions. Checked every 10 minutes.',
    ),
    scratch_bytes_per_owner: bytes(
      20 * GIB,
      'Maximum total size of the private folders of one owner. Above it, new turns in private folders are refused until sessions are closed.',
    ),
    artifact_bytes: bytes(
      20 * GIB,
      'Maximum total size of kept copies of produced files. Above it, the oldest copies are deleted.',
    ),
    artifact_bytes_per_owner: bytes(5 * GIB, 'The same for one owner.'),
    ...sandboxLimitSettings,
    attachment_bytes_per_owner: bytes(200 * MIB, 'Maximum total size of the uploaded attachments of one owner.'),
  }),
});

const environment = setting.record(setting.text({ default: '', secret: 'maybe' }), {
  ...VARIABLE,
  description: 'Variables for the program, added to the few that every agent gets.',
});
const adapterUrl = setting.url({
  schemes: ['http', 'https'],
  default: '',
  description: 'Address of a remote `trestle adapter`, used instead of the program.',
});
const adapterToken = setting.token({ default: '', description: 'Token for that address. Empty: none is sent.' });
const programArguments = (fallback: readonly string[]) =>
  setting.list(setting.text({ default: '' }), { default: fallback, description: 'Arguments of the program.' });
const programName = (fallback: string) =>
  setting.command({ default: fallback, description: 'The program: a name to look up in PATH, or a path.' });

export const agentsSettings = setting.group('The agents that do the work.', {
  catalog: setting.list(setting.text({ pattern: AGENT_ID, expects: AGENT_ID_WORDS }), {
    default: ['builtin', 'codex', 'opencode', 'gemini'],
    description: 'Agents on offer, in routing order. Custom agents that are not named here come last.',
  }),
  default: setting.text({
    default: 'builtin',
    pattern: AGENT_ID,
    expects: AGENT_ID_WORDS,
    description: 'The agent for requests that do not name one.',
  }),
  ...agentProgramSettings,
  builtin: setting.group('The built-in agent.', {
    ...builtinSettings,
    mcp: setting.list(
      setting.group('', {
        name: setting.text({
          pattern: '^[A-Za-z0-9][A-Za-z0-9-]{0,31}$',
          expects: 'letters, digits and dashes, at most 32',
          description: 'Its name; the names of its tools begin with it.',
        }),
        command: setting.command({ description: 'The program: a name to look up in PATH, or a path.' }),
        args: programArguments([]),
        env: environment,
        trusted: setting.flag({
          default: false,
          description: 'Run it outside the sandbox, in one process for all sessions. `trestle tools` needs this.',
        }),
      }),
      { description: 'MCP servers whose tools the built-in agent may use, such as `trestle tools`.' },
    ),
  }),
  codex: setting.group('Codex, through its app-server protocol.', {
    command: programName('codex'),
    args: programArguments(['app-server']),
    env: environment,
  }),
  opencode: setting.group('OpenCode, through the Agent Client Protocol.', {
    command: programName('opencode'),
    args: programArguments(['acp']),
    env: environment,
    url: adapterUrl,
    token: adapterToken,
  }),
  gemini: setting.group('Gemini, through the Agent Client Protocol.', {
    command: programName('gemini'),
    args: programArguments(['--acp']),
    env: environment,
    url: adapterUrl,
    token: adapterToken,
  }),
  custom: setting.list(
    setting.group('', {
      id: setting.text({ pattern: AGENT_ID, expects: AGENT_ID_WORDS, description: 'Its id in the catalog.' }),
      label: setting.text({ default: '', description: 'The name to show. Empty: the id.' }),
      category: setting.choice(['native', 'protocol-adapter'], {
        default: 'protocol-adapter',
        description: 'The category that the catalog shows.',
      }),
      command: setting.command({ default: '', description: 'The program: a name to look up in PATH, or a path.' }),
      args: programArguments([]),
      env: environment,
      url: adapterUrl,
      token: adapterToken,
      runner_agent: setting.text({
        default: '',
        description:
          'The id of this agent on the runners (`trestle runner`) that do its work, used instead of the program. Empty: it does not run on runners.',
      }),
      requires: setting.list(setting.text({ default: '' }), {
        description: 'Labels that such a runner must have.',
      }),
    }),
    { description: 'More agents that speak the Agent Client Protocol.' },
  ),
});

export const gatewaySettings = setting.group('The gateway runtime, and the tools that are reached through it.', {
  provider_id: setting.text({
    default: 'openclaw',
    pattern: AGENT_ID,
    expects: AGENT_ID_WORDS,
    description: 'The id of the gateway as a provider.',
  }),
  label: setting.text({ default: 'OpenClaw', description: 'The name to show.' }),
  url: setting.url({
    schemes: ['ws', 'wss'],
    default: '',
    description: 'Address of the gateway. Empty: no gateway.',
  }),
  token: setting.token({ default: '', reload: true, description: 'Token for the gateway.' }),
  tools_url: setting.url({
    schemes: ['http', 'https'],
    default: '',
    env: 'GATEWAY_TOOLS_INVOKE_URL',
    description: 'HTTP endpoint for tool calls. Empty: they go through the gateway itself.',
  }),
  tools_token: setting.token({
    default: '',
    env: 'GATEWAY_TOOLS_TOKEN',
    reload: true,
    description: 'Token for that endpoint.',
  }),
  people: setting.flag({
    default: false,
    description:
      'Whether users with an account, service accounts and teams may use the gateway: as an agent, and with `app.gateway.*`, `app.tools.invoke` and job cards. The gateway acts with the rights of its own operator for every caller, over one connection. Static tokens may always use it.',
  }),
  tools_allow: setting.list(
    setting.text({ pattern: '^[A-Za-z0-9_.*:/-]{1,128}$', expects: 'a tool name, with * for any characters' }),
    {
      default: ['*'],
      description:
        'Tools that may be called, with `app.tools.invoke`, with `tools.invoke` of the gateway, and by job cards. `*` stands for any characters.',
    },
  ),
  methods_allow: setting.record(
    setting.list(
      setting.text({ pattern: '^[A-Za-z0-9_.*:/-]{1,128}$', expects: 'a method, with * for any characters' }),
      {
        description: 'Methods that may be called.',
      },
    ),
    {
      keyPattern: '^[A-Za-z0-9_.*:/-]{1,256}$',
      keyExpects: 'principals: `main`, `review`, `node:<id>`, with * for any characters',
      description:
        'Methods of the gateway that each principal may call with `app.gateway.request`. Defaults for principals that are not listed: all methods for `main`; `agent.wait`, `chat.abort`, `chat.history` and `chat.send` for others.',
    },
  ),
});

const NODE_ID = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$';
const NODE_ID_WORDS = 'a node id of letters, digits, dots, dashes and underscores, at most 64';
const nodeId = (description: string, fallback?: '') =>
  setting.text({
    pattern: NODE_ID,
    expects: NODE_ID_WORDS,
    description,
    ...(fallback !== undefined && { default: fallback }),
  });
const WORD = { pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', expects: 'a word of letters, digits, dots and dashes' };

export const distributedSettings = setting.group('Forwarding of tasks to other bridges.', {
  topology: setting.text({
    ...WORD,
    default: '',
    description: 'A note on how the bridges are arranged, such as `dual-node`; it has no effect.',
  }),
  local_node_id: nodeId('Id of this node.', ''),
  task_forward_peer_id: nodeId('Short form: the peer that gets `session.start` and `session.message`.', ''),
  task_forward_token: setting.token({
    default: '',
    reload: true,
    description: 'Bearer token between bridges. Empty: the main token.',
  }),
  nodes: setting.list(
    setting.group('', {
      id: nodeId('Id of the node.'),
      role: setting.text({
        ...WORD,
        default: '',
        description: 'Role that selectors match, such as `edge`, `hub` or `executor`.',
      }),
      zone: setting.text({ ...WORD, default: '', description: 'Zone that selectors match.' }),
      bridge_endpoint: setting.url({
        schemes: ['http', 'https'],
        description: 'Address of its bridge: loopback, private or link-local.',
      }),
      capabilities: setting.list(setting.text(WORD), { description: 'Capabilities that selectors match.' }),
    }),
    { description: 'The other bridges that this one knows.' },
  ),
  forwarding: setting.group('Which calls go where.', {
    hop_limit: setting.integer({
      default: 3,
      minimum: 1,
      maximum: 16,
      description: 'Maximum number of nodes that a request may pass through.',
    }),
    default_action: setting.choice(['execute_local', 'reject'], {
      default: 'execute_local',
      description: 'What happens to calls that no rule matches.',
    }),
    rules: setting.list(
      setting.group('', {
        methods: setting.list(
          setting.text({ pattern: '^(\\*|[A-Za-z][A-Za-z0-9_.-]{0,127})$', expects: 'a method name, or *' }),
          { minimum: 1, description: 'Methods that the rule applies to; `*` stands for all.' },
        ),
        target: setting.group('Where they go: either `node_id`, or `selector` with `strategy`.', {
          node_id: nodeId('The node that receives them.', ''),
          selector: setting.group('What a node must match.', {
            role: setting.text({ ...WORD, default: '', description: 'Role of the nodes to choose from.' }),
            capability: setting.text({ ...WORD, default: '', description: 'Capability that they must have.' }),
            zone: setting.text({ ...WORD, default: '', description: 'Zone that they must be in.' }),
          }),
          strategy: setting.choice(['first', 'round_robin'], {
            default: 'first',
            description: 'How to choose between several matching nodes.',
          }),
        }),
      }),
      { description: 'Forwarding rules; the first rule that matches applies.' },
    ),
    routes: setting.list(
      setting.group('', {
        target_node_id: nodeId('The node to be reached.'),
        next_hop_node_id: nodeId('The node to which its requests are forwarded.'),
      }),
      { description: 'Next hops for nodes that are not reachable directly.' },
    ),
  }),
});

export type BridgeSettings = Static<typeof bridgeSettings>;
export type AgentsSettings = Static<typeof agentsSettings>;
export type DistributedSettings = Static<typeof distributedSettings>;

/** All groups that are the bridge's. */
export interface BridgeGroups {
  readonly bridge: BridgeSettings;
  readonly agents: AgentsSettings;
  readonly jobs: Static<typeof jobsSettings>;
  readonly gateway: Static<typeof gatewaySettings>;
  readonly distributed: DistributedSettings;
}
