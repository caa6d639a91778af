import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import { type ChannelEnd, createLineChannel, type LineChannel } from '../../platform/json-rpc/message-channel.ts';
import type { ReachableMcpServer } from '../sessions/mcp-servers.ts';
import type { PermissionOption, SupervisedTurn, TurnUsage } from './agent-provider.ts';
import { asObject, objectsIn, shownText, textOf } from './agent-text.ts';
import type { AcceptedContent, PromptPart } from './prompt-content.ts';

/**
 * A connection to a running agent program, in the protocol of the agent. Only connections differ between protocols: processes, turns
 * and cancelling are the same for all. Every function may reject, at the latest when the program ends.
 */
export interface AgentConnection {
  /** Whether a conversation can be taken up by a later process of the agent. */
  readonly continues: boolean;
  /** What a prompt may have besides text. */
  readonly accepts: AcceptedContent;
  /** The kinds of MCP servers that it takes, besides programs. */
  readonly servers: { readonly http: boolean; readonly sse: boolean };
  /** Opens a conversation in a folder and returns the agent's name for it. */
  open(folder: string, model: string, servers: readonly ReachableMcpServer[]): Promise<string>;
  /** Takes up a conversation of an earlier process. Rejects, for whatever reason, when the agent cannot. */
  resume(conversation: string, folder: string, servers: readonly ReachableMcpServer[]): Promise<void>;
  /** Copies a conversation that this process has open, and returns the name of the copy. Absent: the agent cannot. */
  fork?(conversation: string, folder: string, servers: readonly ReachableMcpServer[]): Promise<string>;
  /** Runs one turn of a conversation that this process has open. */
  prompt(request: PromptRequest): Promise<PromptEnd>;
  /** Asks the agent to stop the running turn of a conversation; the prompt then ends. */
  interrupt(conversation: string): void;
  /** The version that the agent gives itself; empty when it gives none. */
  readonly version: string;
  /** Checks without cost whether a login is needed, and returns what to do; undefined when none is needed, or unknown. */
  findMissingLogin(folder: string): Promise<string | undefined>;
  /** The ways to log in. Empty: the agent does not say, or needs no login. */
  readonly loginMethods: readonly LoginMethod[];
  /** Has the agent log in by a method that needs no terminal. Rejects when that fails. */
  logIn?(methodId: string): Promise<void>;
  /** Whether the agent can delete what it has stored of a conversation, also of one of an earlier process. */
  readonly deletes: boolean;
  /** Tells the agent that a conversation is over, and has it deleted; resolves with what is left of it, if anything is. */
  close(conversation: string): Promise<string | undefined>;
  /** Resolves when no further message can come; with why, if that is known. */
  readonly closed: Promise<ChannelEnd | undefined>;
}

/** A way to log in to an agent. */
export interface LoginMethod {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** A person runs the program in a terminal, with these arguments and variables. Absent: the agent needs no terminal. */
  readonly terminal?: TerminalLogin;
}

export interface TerminalLogin {
  readonly args: readonly string[];
  /** Whether `args` come after those that the agent is always started with. */
  readonly isAppended: boolean;
  readonly environment: Readonly<Record<string, string>>;
}

const MAX_LOGIN_METHODS = 16;

/** The ways to log in that an agent offers. Those for a terminal begin with what the agent is started with. */
export function readLoginMethods(offered: unknown): readonly LoginMethod[] {
  return objectsIn(offered)
    .slice(0, MAX_LOGIN_METHODS)
    .map(({ id, name, description, type, args, env }) => {
      const texts = Array.isArray(args) ? args.filter((one) => typeof one === 'string') : [];
      const environment = Object.fromEntries(Object.entries(asObject(env)).map(([key, value]) => [key, textOf(value)]));
      return {
        id: textOf(id),
        name: shownText(name),
        description: shownText(description),
        ...(type === 'terminal' && { terminal: { args: texts, isAppended: true, environment } }),
      };
    })
    .filter(({ id }) => id !== '');
}

/** The members of the turn that a protocol needs, and what the agent gets of its prompt. */
export interface PromptRequest
  extends Pick<
    SupervisedTurn,
    'model' | 'mode' | 'thinking' | 'isReadOnly' | 'report' | 'usedModel' | 'permit' | 'offers' | 'steerable' | 'trace'
  > {
  readonly conversation: string;
  readonly text: string;
  /** Files that are shown with the text. */
  readonly parts: readonly PromptPart[];
  readonly folder: string;
}

/** How a turn ended, according to the agent. Its events were reported before. */
export type PromptEnd =
  | {
      readonly kind: 'completed';
      readonly stopReason: string;
      /** The final text, where the agent says which one it is. */
      readonly output?: string;
      readonly usage?: TurnUsage;
    }
  | { readonly kind: 'cancelled'; readonly usage?: TurnUsage }
  | { readonly kind: 'failed'; readonly error: string; readonly usage?: TurnUsage }
  /** The agent does not know the conversation, and has done nothing. */
  | { readonly kind: 'lost'; readonly detail: string };

/** For agents that do not say which answers they take. */
export const PLAIN_OPTIONS: readonly PermissionOption[] = [
  { optionId: 'allow', name: 'Allow once', kind: 'allow_once' },
  { optionId: 'reject', name: 'Reject', kind: 'reject_once' },
];

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
  /** Resolves with the end, after its listener was called. */
  readonly closed: Promise<ChannelEnd>;
  close: LineChannel['close'];
  /** Reads no further message until the promise is settled; undefined: there is nothing to wait for. */
  holdBack(until: Promise<void> | undefined): void;
}

/** An answer may carry whole files and images. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const MAX_BUFFERED_BYTES = 16 * 1024 * 1024;
const MESSAGE_START = '{"jsonrpc"';

/**
 * Creates the channel for the messages of an agent program. Programs print other text on the same stream (banners, warnings, log lines,
 * also in front of a message on its line), which is skipped.
 */
export function createAgentChannel(process: RunningProcess, clock: Pick<Clock, 'after'>): AgentChannel {
  const closed = Promise.withResolvers<ChannelEnd>();
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
    onEnd(next) {
      channel.onEnd((end) => {
        next(end);
        closed.resolve(end);
      });
    },
    closed: closed.promise,
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
