import type { Static } from 'typebox';
import type {
  GatewayConnectParams,
  GatewayConnectResult,
  GatewayDisconnectParams,
  GatewayRequestParams,
  GatewayRequestResult,
} from '../bridge/contract/gateway.ts';
import type { ToolsInvokeParams } from '../bridge/contract/tools.ts';
import type { CallBridge } from './bridge-transport.ts';
import type { CallOptions } from './call-limits.ts';

/** The gateway behind the bridge (contract/bridge 8). */
export interface Gateway {
  connect(params?: Static<typeof GatewayConnectParams>, options?: CallOptions): Promise<GatewayConnectResult>;
  /** What the gateway refuses is a result with `ok: false`. Never sent twice. */
  request(params: Static<typeof GatewayRequestParams>, options?: CallOptions): Promise<GatewayRequestResult>;
  disconnect(params?: Static<typeof GatewayDisconnectParams>, options?: CallOptions): Promise<void>;
}

/** The tools proxy (spec/bridge 4.5). */
export interface Tools {
  /** What the tool answered, unchanged. Never sent twice. */
  invoke(
    params: Static<typeof ToolsInvokeParams> & { readonly tool: string },
    options?: CallOptions,
  ): Promise<Record<string, unknown>>;
}

export function createGateway(call: CallBridge): Gateway {
  return {
    connect: (params = {}, options) => call({ method: 'app.gateway.connect', params }, options),
    request: (params, options) => call({ method: 'app.gateway.request', params, isRepeatable: false }, options),
    async disconnect(params = {}, options) {
      await call({ method: 'app.gateway.disconnect', params }, options);
    },
  };
}

export function createTools(call: CallBridge): Tools {
  return {
    invoke: (params, options) => call({ method: 'app.tools.invoke', params, isRepeatable: false }, options),
  };
}
