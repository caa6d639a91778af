import { join } from 'node:path';
import type { MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentProvider } from '../agents/agent-provider.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { BridgeGroups } from '../settings.ts';
import { createInvokeTool, createToolRule, type InvokeTool } from '../tools/invoke-tool.ts';
import { toolMethods } from '../tools/tool-methods.ts';
import { createToolsOverHttp } from '../tools/tools-over-http.ts';
import { createToolsOverRuntime } from '../tools/tools-over-runtime.ts';
import { createGatewayAgent } from './create-gateway-agent.ts';
import { loadDeviceKey } from './device-key.ts';
import { createGatewayLink } from './gateway-link.ts';
import { gatewayMethods } from './gateway-methods.ts';

type GatewaySettings = BridgeGroups['gateway'];

/** All that the bridge has of its gateway. */
export interface Gateway {
  /** Runs gateway tasks as turns. Its `stop` ends the connection too. */
  readonly provider: AgentProvider;
  readonly methods: readonly MethodRow<BridgeClient>[];
  readonly invokeTool: InvokeTool;
  reload(settings: GatewaySettings): void;
}

export interface GatewayOptions extends Runtime {
  readonly settings: GatewaySettings;
  readonly dataDirectory: string;
  readonly version: string;
  /** Told when the gateway became connected, or ceased to be. */
  onChange(): void;
}

const TOOL_MS = 60_000;
const MOST_ANSWER_BYTES = 1024 * 1024;

export function createGateway(options: GatewayOptions): Gateway {
  const { clock, randomness, makeId, logger, version } = options;
  const { provider_id: id, url, tools_url: toolsUrl, tools_allow: toolsAllowed } = options.settings;
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
      ? createToolsOverRuntime(link, TOOL_MS, MOST_ANSWER_BYTES)
      : createToolsOverHttp({
          url: toolsUrl,
          token: () => toolsToken,
          clock,
          timeoutMs: TOOL_MS,
          mostBytes: MOST_ANSWER_BYTES,
        });
  const checkTool = createToolRule(toolsAllowed);
  const invokeTool = createInvokeTool({ checkTool, callTool, secrets: () => [token, toolsToken] });
  return {
    provider: createGatewayAgent({ id, link, clock, makeId, logger }),
    methods: [
      ...gatewayMethods({ gatewayId: id, link, allowed: options.settings.methods_allow, checkTool }),
      ...toolMethods(invokeTool),
    ],
    invokeTool,
    reload(next) {
      token = next.token;
      toolsToken = next.tools_token;
      link.setToken(token);
    },
  };
}
