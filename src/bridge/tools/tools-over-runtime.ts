import { asObject, textOf } from '../agents/loose-json.ts';
import { describeGatewayFailure } from '../gateway/gateway-failure.ts';
import type { GatewayLink } from '../gateway/gateway-link.ts';
import { type CallTool, toolFailed } from './invoke-tool.ts';

/** The method of the gateway that calls a tool. */
export const TOOLS_METHOD = 'tools.invoke';

/** Calls tools on the connected gateway itself, which knows no actions: they travel inside the arguments. */
export function createToolsOverRuntime(
  link: Pick<GatewayLink, 'request'>,
  timeoutMs: number,
  mostBytes: number,
): CallTool {
  return async (tool, action, args, signal) => {
    const params = { name: tool, args: action === '' ? args : { ...args, action } };
    const answer = await link.request(TOOLS_METHOD, params, timeoutMs, signal).catch((error: unknown) => {
      const { code, message } = describeGatewayFailure(error);
      throw toolFailed(0, `${code}: ${message}`);
    });
    const { ok, error } = asObject(answer);
    if (ok === false) throw toolFailed(0, textOf(asObject(error).message) || textOf(error) || 'the tool failed');
    if (Buffer.byteLength(JSON.stringify(answer ?? null)) > mostBytes) {
      throw toolFailed(0, `its answer is larger than ${mostBytes} bytes`);
    }
    return answer;
  };
}
