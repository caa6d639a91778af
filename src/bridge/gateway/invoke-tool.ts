import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { readAtMost } from '../../platform/http/bounded-fetch.ts';
import { decodeUtf8, parseJson } from '../../platform/json/parse-json.ts';
import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import { createKnownSecrets } from '../../platform/log/hidden-secrets.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { ToolsInvokeParams, ToolsInvokeResult } from '../contract/routing.ts';
import type { GatewayLink } from './gateway-link.ts';
import { describeGatewayFailure } from './gateway-messages.ts';

/** Whether a name matches a pattern in which `*` stands for any characters. The time grows linearly with both lengths. */
export function matchesToolPattern(pattern: string, name: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return pattern === name;
  if (!name.startsWith(first) || name.length < first.length + last.length || !name.endsWith(last)) return false;
  const end = name.length - last.length;
  let at = first.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found === -1 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/** Calls a tool. The response can be any JSON. Rejects with TOOLS_INVOKE_FAILED. */
type CallTool = (
  tool: string,
  action: string,
  args: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
) => Promise<unknown>;

/** Calls a tool if it is allowed, and returns its response. A response that is not an object is wrapped in one. */
export type InvokeTool = (...call: Parameters<CallTool>) => Promise<Readonly<Record<string, unknown>>>;

interface InvokeToolOptions {
  readonly checkTool: CheckTool;
  readonly callTool: CallTool;
  /** Returns the current secrets, which are hidden in responses. */
  secrets(): readonly string[];
}

/** Throws TOOL_REQUIRED or TOOL_NOT_ALLOWED. Called before every call of a tool. */
type CheckTool = (tool: string) => void;

/** `allowed`: patterns in which `*` stands for any characters. */
export function createToolRule(allowed: readonly string[]): CheckTool {
  return (tool) => {
    if (tool.trim() === '') throw new AppError('TOOL_REQUIRED');
    if (!allowed.some((pattern) => matchesToolPattern(pattern, tool))) {
      throw new AppError('TOOL_NOT_ALLOWED', { tool: tool.slice(0, 100) });
    }
  };
}

const MAX_DETAIL = 500;

export function createInvokeTool({ checkTool, callTool, secrets }: InvokeToolOptions): InvokeTool {
  return async (tool, action, args, signal) => {
    checkTool(tool);
    const { hide } = createKnownSecrets(secrets());
    try {
      const answer = hideInside(await callTool(tool, action, args, signal), hide);
      const isObject = typeof answer === 'object' && answer !== null && !Array.isArray(answer);
      return isObject ? (answer as Readonly<Record<string, unknown>>) : { value: answer };
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'TOOLS_INVOKE_FAILED') throw error;
      throw toolFailed(Number(error.details.status), hide(String(error.details.detail)));
    }
  };
}

/** `status` is that of the HTTP answer; 0 where there was none. */
function toolFailed(status: number, detail: string): AppError {
  return new AppError('TOOLS_INVOKE_FAILED', { status, detail: detail.slice(0, MAX_DETAIL) });
}

/** Hides the credentials of the endpoint in its response, in case it repeats them. */
function hideInside(value: unknown, hide: (text: string) => string): unknown {
  if (typeof value === 'string') return hide(value);
  if (Array.isArray(value)) return value.map((item) => hideInside(item, hide));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [hide(name), hideInside(item, hide)]));
}

interface ToolsOverHttpOptions {
  readonly url: string;
  /** Called for each call of a tool, because the token can be reloaded. Empty: none is sent. */
  token(): string;
  readonly clock: Pick<Clock, 'after'>;
  readonly timeoutMs: number;
  readonly mostBytes: number;
}

/** Calls tools through the gateway's HTTP endpoint. */
export function createToolsOverHttp({ url, token, clock, timeoutMs, mostBytes }: ToolsOverHttpOptions): CallTool {
  return async (tool, action, args, signal) => {
    const bearer = token();
    const limit = deadline(clock, timeoutMs, [signal]);
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json',
          ...(bearer !== '' && { authorization: `Bearer ${bearer}` }),
        },
        body: JSON.stringify({ tool, action, args }),
        redirect: 'manual',
        signal: limit.signal,
      });
      const bytes = await readAtMost(response.body, mostBytes);
      if (bytes === undefined) throw toolFailed(response.status, `its answer is larger than ${mostBytes} bytes`);
      const value = readValue(decodeUtf8(bytes));
      if (!response.ok)
        throw toolFailed(response.status, refusalOf(value) || `it answered with status ${response.status}`);
      if (value === undefined) throw toolFailed(response.status, 'its answer is not JSON');
      return value;
    } catch (error) {
      if (errorCode(error) === 'TOOLS_INVOKE_FAILED') throw error;
      if (limit.hasPassed()) throw toolFailed(0, `no answer within ${timeoutMs} ms`);
      const { cause } = asObject(error);
      throw toolFailed(
        0,
        `the endpoint cannot be reached (${errorCode(cause) || errorCode(error) || 'no connection'})`,
      );
    } finally {
      limit.release();
    }
  };
}

function readValue(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function refusalOf(value: unknown): string {
  const { error, message } = asObject(value);
  return textOf(error) || textOf(asObject(error).message) || textOf(message);
}

/** The method of the gateway that calls a tool. */
export const TOOLS_METHOD = 'tools.invoke';

/** Calls tools on the connected gateway. Its method has no actions, so the action is sent inside the arguments. */
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

export function toolMethods(
  invokeTool: InvokeTool,
  checkOwner: (owner: string) => void,
): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'app.tools.invoke',
      summary: 'Calls a tool of the gateway.',
      params: ToolsInvokeParams,
      result: ToolsInvokeResult,
      handle({ tool = '', action = '', args = {} }, call) {
        checkOwner(call.caller.caller.principal.id);
        return invokeTool(tool, action, args, call.signal);
      },
    }),
  ];
}
