import { AppError } from '../../platform/errors/app-error.ts';
import { createKnownSecrets } from '../../platform/log/hidden-secrets.ts';
import { matchesToolPattern } from './tool-pattern.ts';

/** One way to a tool. Its answer can be any JSON; rejects with TOOLS_INVOKE_FAILED. */
export type CallTool = (
  tool: string,
  action: string,
  args: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
) => Promise<unknown>;

/** Calls a tool that may be called (contract/bridge 8). The answer is that of the tool; what is no object is wrapped. */
export type InvokeTool = (...call: Parameters<CallTool>) => Promise<Readonly<Record<string, unknown>>>;

export interface InvokeToolOptions {
  readonly checkTool: CheckTool;
  readonly callTool: CallTool;
  /** What must never be in an answer, right now. */
  secrets(): readonly string[];
}

/** Throws TOOL_REQUIRED or TOOL_NOT_ALLOWED. Every path to a tool asks it. */
export type CheckTool = (tool: string) => void;

/** `allowed`: patterns in which `*` stands for any characters. */
export function createToolRule(allowed: readonly string[]): CheckTool {
  return (tool) => {
    if (tool.trim() === '') throw new AppError('TOOL_REQUIRED');
    if (!allowed.some((pattern) => matchesToolPattern(pattern, tool))) {
      throw new AppError('TOOL_NOT_ALLOWED', { tool: tool.slice(0, 100) });
    }
  };
}

const LONGEST_DETAIL = 500;

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
export function toolFailed(status: number, detail: string): AppError {
  return new AppError('TOOLS_INVOKE_FAILED', { status, detail: detail.slice(0, LONGEST_DETAIL) });
}

/** An endpoint that repeats its credential does not get it through to apps. */
function hideInside(value: unknown, hide: (text: string) => string): unknown {
  if (typeof value === 'string') return hide(value);
  if (Array.isArray(value)) return value.map((item) => hideInside(item, hide));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [hide(name), hideInside(item, hide)]));
}
