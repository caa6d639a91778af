import { join } from 'node:path';
import { AppError } from '../../platform/errors/app-error.ts';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentProvider } from '../agents/agent-provider.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  GatewayConnectParams,
  GatewayConnectResult,
  GatewayDisconnectParams,
  GatewayRequestParams,
  GatewayRequestResult,
} from '../contract/routing.ts';
import { Accepted } from '../contract/session.ts';
import { personOf } from '../principal.ts';
import type { BridgeGroups } from '../settings.ts';
import { createGatewayAgent } from './create-gateway-agent.ts';
import { createGatewayLink, type GatewayLink } from './gateway-link.ts';
import { describeGatewayFailure, loadDeviceKey } from './gateway-messages.ts';
import {
  createInvokeTool,
  createToolRule,
  createToolsOverHttp,
  createToolsOverRuntime,
  type InvokeTool,
  matchesToolPattern,
  TOOLS_METHOD,
  toolMethods,
} from './invoke-tool.ts';

type GatewaySettings = BridgeGroups['gateway'];

/** The parts of the gateway that the bridge uses. */
interface Gateway {
  /** Runs gateway tasks as turns. Its `stop` ends the connection too. */
  readonly provider: AgentProvider;
  readonly methods: readonly MethodRow<BridgeClient>[];
  readonly invokeTool: InvokeTool;
  /** Throws GATEWAY_NOT_FOR_PEOPLE when an owner may not use it. */
  checkOwner(owner: string): void;
  reload(settings: GatewaySettings): void;
}

interface GatewayOptions extends Runtime {
  readonly settings: GatewaySettings;
  readonly dataDirectory: string;
  readonly version: string;
  /** Called when the gateway has connected or disconnected. */
  onChange(): void;
}

const TOOL_MS = 60_000;
const MAX_ANSWER_BYTES = 1024 * 1024;

export function createGateway(options: GatewayOptions): Gateway {
  const { clock, randomness, makeId, logger, version } = options;
  const { provider_id: id, url, tools_url: toolsUrl, tools_allow: toolsAllowed, people } = options.settings;
  let { token, tools_token: toolsToken } = options.settings;
  const link = createGatewayLink({
    url,
    token,
    version,
    clock,
    randomness,
    logger,
    onChange: options.onChange,
    loadDeviceKey: () => loadDeviceKey(join(options.dataDirectory, 'gateway-device.pem'), randomness),
  });
  const callTool =
    toolsUrl === ''
      ? createToolsOverRuntime(link, TOOL_MS, MAX_ANSWER_BYTES)
      : createToolsOverHttp({
          url: toolsUrl,
          token: () => toolsToken,
          clock,
          timeoutMs: TOOL_MS,
          mostBytes: MAX_ANSWER_BYTES,
        });
  const checkTool = createToolRule(toolsAllowed);
  const invokeTool = createInvokeTool({ checkTool, callTool, secrets: () => [token, toolsToken] });
  const isOpenTo = (owner: string) => people || personOf(owner) === undefined;
  function checkOwner(owner: string): void {
    if (!isOpenTo(owner)) throw new AppError('GATEWAY_NOT_FOR_PEOPLE');
  }

  const agent = createGatewayAgent({ id, link, makeId, logger });
  return {
    provider: {
      ...agent,
      async run(turn, signal) {
        if (isOpenTo(turn.owner)) return agent.run(turn, signal);
        const error = 'it is not open to users with an account; the operator can set gateway.people';
        return { kind: 'failed', code: 'GATEWAY_UNAVAILABLE', error };
      },
    },
    methods: [
      ...gatewayMethods({ gatewayId: id, link, allowed: options.settings.methods_allow, checkTool, checkOwner }),
      ...toolMethods(invokeTool, checkOwner),
    ],
    invokeTool,
    checkOwner,
    reload(next) {
      token = next.token;
      toolsToken = next.tools_token;
      link.setToken(token);
    },
  };
}

const DEFAULT_TIMEOUT_MS = 15_000;

/** The methods that an app needs to send, follow and stop chat tasks. Callers other than `main` may call these, unless the settings list others. */
const CHAT_METHODS: readonly string[] = ['agent.wait', 'chat.abort', 'chat.history', 'chat.send'];
const DEFAULT_METHODS: Readonly<Record<string, readonly string[]>> = { main: ['*'], '*': CHAT_METHODS };

interface GatewayMethodsOptions {
  readonly gatewayId: string;
  readonly link: GatewayLink;
  /** `gateway.methods_allow`: by principal, or a pattern of principals, patterns of methods. */
  readonly allowed: Readonly<Record<string, readonly string[]>>;
  /** Throws unless the tool may be called. Gateway methods can call tools too, so they are checked by the same rule. */
  checkTool(tool: string): void;
  checkOwner(owner: string): void;
}

/** The control plane of the gateway. Failures of the gateway are reported in the result. */
function gatewayMethods(options: GatewayMethodsOptions): readonly MethodRow<BridgeClient>[] {
  const { gatewayId, link, allowed, checkTool, checkOwner } = options;

  function checkMethod(principal: string, method: string, params: unknown): void {
    const patterns = methodsOf(allowed, principal) ?? methodsOf(DEFAULT_METHODS, principal) ?? [];
    if (!patterns.some((pattern) => matchesToolPattern(pattern, method))) {
      throw new AppError('GATEWAY_METHOD_NOT_ALLOWED', { method: method.slice(0, 100) });
    }
    // Some gateways read the name of the tool from `tool`, others from `name`: each given name must be allowed.
    if (method.trim().toLowerCase() === TOOLS_METHOD) {
      const { name, tool } = asObject(params);
      const names = [name, tool].filter((given) => given !== undefined);
      if (names.length === 0) throw new AppError('TOOL_REQUIRED');
      for (const given of names) checkTool(textOf(given));
    }
  }

  return [
    defineMethod({
      name: 'app.gateway.connect',
      summary: 'Connects this bridge to its gateway.',
      params: GatewayConnectParams,
      result: GatewayConnectResult,
      async handle({ gatewayProviderId = '' }, call: MethodCall<BridgeClient>): Promise<GatewayConnectResult> {
        checkOwner(call.caller.caller.principal.id);
        if (gatewayProviderId !== '' && gatewayProviderId !== gatewayId) {
          throw new AppError('INVALID_PARAMS', { reason: 'there is no gateway of that gatewayProviderId' });
        }
        const error = await link.connect().then(() => null, failureOf);
        const snapshot = await link.snapshot();
        const auth = { role: snapshot.authRole, scopes: snapshot.authScopes };
        return { ok: error === null, snapshot, auth, returnedDeviceToken: '', error };
      },
    }),
    defineMethod({
      name: 'app.gateway.request',
      summary: 'Sends one call to the gateway, over the connection of this bridge.',
      params: GatewayRequestParams,
      result: GatewayRequestResult,
      async handle(
        { method, params = {}, timeoutMs = DEFAULT_TIMEOUT_MS },
        call: MethodCall<BridgeClient>,
      ): Promise<GatewayRequestResult> {
        checkOwner(call.caller.caller.principal.id);
        checkMethod(call.caller.caller.principal.id, method, params);
        try {
          return { ok: true, payload: await link.request(method, params, timeoutMs, call.signal), error: null };
        } catch (error) {
          return { ok: false, payload: null, error: failureOf(error) };
        }
      },
    }),
    defineMethod({
      name: 'app.gateway.disconnect',
      summary: 'Ends the connection to the gateway. Tasks that run there continue.',
      params: GatewayDisconnectParams,
      result: Accepted,
      handle(_params, call: MethodCall<BridgeClient>) {
        checkOwner(call.caller.caller.principal.id);
        link.disconnect();
        return { accepted: true as const };
      },
    }),
  ];
}

/** Returns the entry of exactly this principal, otherwise the first entry whose pattern matches. */
function methodsOf(
  table: Readonly<Record<string, readonly string[]>>,
  principal: string,
): readonly string[] | undefined {
  if (Object.hasOwn(table, principal)) return table[principal];
  return Object.entries(table).find(([pattern]) => matchesToolPattern(pattern, principal))?.[1];
}

function failureOf(error: unknown): { code: string; message: string } {
  const { code, message } = describeGatewayFailure(error);
  return { code, message };
}
