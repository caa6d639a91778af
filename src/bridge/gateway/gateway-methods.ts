import { AppError } from '../../platform/errors/app-error.ts';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import { asObject, textOf } from '../agents/loose-json.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  GatewayConnectParams,
  GatewayConnectResult,
  GatewayDisconnectParams,
  GatewayRequestParams,
  GatewayRequestResult,
} from '../contract/gateway.ts';
import { Accepted } from '../contract/session.ts';
import { matchesToolPattern } from '../tools/tool-pattern.ts';
import { TOOLS_METHOD } from '../tools/tools-over-runtime.ts';
import { describeGatewayFailure } from './gateway-failure.ts';
import type { GatewayLink } from './gateway-link.ts';

const DEFAULT_TIMEOUT_MS = 15_000;

/** What an app needs to send, follow and stop chat tasks. Callers other than `main` get these unless settings say more or less. */
const CHAT_METHODS: readonly string[] = ['agent.wait', 'chat.abort', 'chat.history', 'chat.send'];
const DEFAULT_METHODS: Readonly<Record<string, readonly string[]>> = { main: ['*'], '*': CHAT_METHODS };

export interface GatewayMethodsOptions {
  readonly gatewayId: string;
  readonly link: GatewayLink;
  /** `gateway.methods_allow`: by principal, or a pattern of principals, patterns of methods. */
  readonly allowed: Readonly<Record<string, readonly string[]>>;
  /** Throws unless the tool may be called: a gateway method that calls tools is one more path to them. */
  checkTool(tool: string): void;
}

/** The control plane of the gateway (contract/bridge 8). Failures of the gateway are reported in the result. */
export function gatewayMethods(options: GatewayMethodsOptions): readonly MethodRow<BridgeClient>[] {
  const { gatewayId, link, allowed, checkTool } = options;

  function checkMethod(principal: string, method: string, params: unknown): void {
    const patterns = methodsOf(allowed, principal) ?? methodsOf(DEFAULT_METHODS, principal) ?? [];
    if (!patterns.some((pattern) => matchesToolPattern(pattern, method))) {
      throw new AppError('GATEWAY_METHOD_NOT_ALLOWED', { method: method.slice(0, 100) });
    }
    // Some gateways take the name of a tool as `tool`: each that is given must be allowed.
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
      async handle({ gatewayProviderId = '' }): Promise<GatewayConnectResult> {
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
      summary: 'One call to the gateway, over the connection of this bridge.',
      params: GatewayRequestParams,
      result: GatewayRequestResult,
      async handle(
        { method, params = {}, timeoutMs = DEFAULT_TIMEOUT_MS },
        call: MethodCall<BridgeClient>,
      ): Promise<GatewayRequestResult> {
        checkMethod(call.caller.caller.principal, method, params);
        try {
          return { ok: true, payload: await link.request(method, params, timeoutMs, call.signal), error: null };
        } catch (error) {
          return { ok: false, payload: null, error: failureOf(error) };
        }
      },
    }),
    defineMethod({
      name: 'app.gateway.disconnect',
      summary: 'Ends the connection to the gateway; tasks that run there are not cut off.',
      params: GatewayDisconnectParams,
      result: Accepted,
      handle() {
        link.disconnect();
        return { accepted: true as const };
      },
    }),
  ];
}

/** The entry for exactly this principal, else the first pattern that fits. */
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
