import { AppError } from '../../platform/errors/app-error.ts';
import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  GatewayConnectParams,
  GatewayConnectResult,
  GatewayDisconnectParams,
  GatewayRequestParams,
  GatewayRequestResult,
} from '../contract/gateway.ts';
import { Accepted } from '../contract/session.ts';
import { describeGatewayFailure } from './gateway-failure.ts';
import type { GatewayLink } from './gateway-link.ts';

const DEFAULT_TIMEOUT_MS = 15_000;

/** The control plane of the gateway (contract/bridge 8). What goes wrong there is told in the result. */
export function gatewayMethods(gatewayId: string, link: GatewayLink): readonly MethodRow<BridgeClient>[] {
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
      async handle({ method, params = {}, timeoutMs = DEFAULT_TIMEOUT_MS }, call): Promise<GatewayRequestResult> {
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

function failureOf(error: unknown): { code: string; message: string } {
  const { code, message } = describeGatewayFailure(error);
  return { code, message };
}
