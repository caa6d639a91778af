import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import { createLineChannel, type LineChannel } from '../../platform/json-rpc/message-channel.ts';

/** A message of JSON-RPC, whether or not it says its version. */
export interface RpcMessage {
  readonly jsonrpc?: unknown;
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

export interface AgentChannel {
  send(text: string): void;
  /** Messages only: what else a program prints has been left out. */
  onMessage(listener: (message: RpcMessage, text: string) => void): void;
  onEnd: LineChannel['onEnd'];
  close: LineChannel['close'];
  /** Reads no further message until the promise is settled; undefined: there is nothing to wait for. */
  holdBack(until: Promise<void> | undefined): void;
}

/** An answer may carry whole files and images. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const MAX_BUFFERED_BYTES = 16 * 1024 * 1024;
const MESSAGE_START = '{"jsonrpc"';

/**
 * The messages of an agent program. Programs print other things on the same stream (banners, warnings, log lines, also in
 * front of a message on its line); all of that is skipped, so that no reader downstream needs to know of it.
 */
export function createAgentChannel(process: RunningProcess, clock: Pick<Clock, 'after'>): AgentChannel {
  let listener: (message: RpcMessage, text: string) => void = () => undefined;

  function take(text: string): void {
    const message = readMessage(text);
    if (message !== undefined) {
      listener(message, text);
      return;
    }
    const start = text.lastIndexOf(MESSAGE_START);
    const rest = start > 0 ? text.slice(start) : '';
    const late = rest === '' ? undefined : readMessage(rest);
    if (late !== undefined) listener(late, rest);
  }

  const channel = createLineChannel({
    readable: process.stdout,
    writable: process.stdin,
    maxLineBytes: MAX_MESSAGE_BYTES,
    maxBufferedBytes: MAX_BUFFERED_BYTES,
    onNoise: take,
    clock,
  });
  return {
    send: channel.send,
    onMessage(next) {
      listener = next;
      channel.onMessage(take);
    },
    onEnd: channel.onEnd,
    close: channel.close,
    holdBack(until) {
      if (until !== undefined) channel.holdBack(until);
    },
  };
}

function readMessage(text: string): RpcMessage | undefined {
  if (!text.trimStart().startsWith('{')) return undefined;
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    return undefined;
  }
  const message = value as RpcMessage;
  const isCall = typeof message.method === 'string';
  const isAnswer = message.id !== undefined && (message.result !== undefined || message.error !== undefined);
  return isCall || isAnswer ? message : undefined;
}
