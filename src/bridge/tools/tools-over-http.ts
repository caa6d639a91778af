import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import { decodeUtf8, parseJson } from '../../platform/json/parse-json.ts';
import { asObject, textOf } from '../agents/loose-json.ts';
import { type CallTool, toolFailed } from './invoke-tool.ts';

export interface ToolsOverHttpOptions {
  readonly url: string;
  /** Asked for at each call, because it can be reloaded. Empty: none is sent. */
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
      const text = await readText(response, mostBytes);
      const value = readValue(text);
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

async function readText(response: Response, mostBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > mostBytes) throw toolFailed(response.status, `its answer is larger than ${mostBytes} bytes`);
    chunks.push(chunk);
  }
  return decodeUtf8(Buffer.concat(chunks));
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
