import { AppError } from '../../platform/errors/app-error.ts';
import { plainEnvelope } from '../../platform/json-rpc/envelope.ts';
import type { ChannelEnd, MessageChannel } from '../../platform/json-rpc/message-channel.ts';
import { createDispatch, type Dispatch } from '../../platform/json-rpc/method-table.ts';
import { createPeer, type Peer } from '../../platform/json-rpc/peer.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { BridgeCaller } from '../access.ts';
import type { PermissionQuestion } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { bridgeErrors } from '../errors.ts';
import { OPERATOR } from '../principal.ts';
import type { RpcOverSocket } from '../rpc-over-socket.ts';
import type { SessionPast } from '../sessions/create-sessions.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { UpdateReceiver } from '../sessions/update-hub.ts';
import { editorMethods } from './editor-methods.ts';
import { createEditorSessions, type EditorSessionsOptions } from './editor-sessions.ts';
import { editorToolKind } from './editor-update.ts';

export interface RpcOverStdioOptions
  extends Pick<EditorSessionsOptions, 'agents' | 'checkDirectory'>,
    Pick<Runtime, 'clock' | 'makeId'> {
  readonly version: string;
  readonly dispatch: Dispatch<BridgeClient>;
  readonly overSocket: RpcOverSocket;
  readonly orchestrator: Pick<SessionOrchestrator, 'follow' | 'forget'>;
  past(principal: string, sessionId: string): Promise<SessionPast | undefined>;
  readonly callsPerConnection: number;
  readonly logger: Pick<Logger, 'warn'>;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** Serves a channel; `agent` is who serves the editor's new sessions, unless it chooses another. Empty: by routing. */
export type RpcOverStdio = (channel: MessageChannel, agent: string) => void;

const PERMISSION_KINDS: ReadonlySet<string> = new Set(['allow_once', 'allow_always', 'reject_once', 'reject_always']);

/** Who starts the program has all its rights already. */
const OWNER: BridgeCaller = { principal: OPERATOR };

/** The bridge's own methods and, beside them on one stream, the Agent Client Protocol (contract/bridge 10). */
export function createRpcOverStdio(options: RpcOverStdioOptions): RpcOverStdio {
  const { dispatch, overSocket, orchestrator, clock, makeId } = options;

  return (channel, agent) => {
    const { editor, app } = splitChannel(channel);
    let isGone = false;
    const receiver: UpdateReceiver = {
      update: ({ text }) => sessions.update(JSON.parse(text) as Readonly<Record<string, unknown>>),
      isBehind: () => channel.isBehind?.() ?? false,
      async drained() {
        await channel.drained?.();
        return !isGone;
      },
      lost: () => channel.close(1011, 'the updates could not be read'),
    };
    const sessions = createEditorSessions({
      dispatch,
      agents: options.agents,
      agent,
      makeId,
      checkDirectory: options.checkDirectory,
      past: (sessionId) => options.past(OWNER.principal, sessionId),
      replay: (sessionId) => orchestrator.follow(OWNER.principal, sessionId, 0, receiver),
      send: (sessionId, update) => peer.notify('session/update', { sessionId, update }),
      warn: (message) => options.logger.warn({}, message),
    });
    const peer: Peer = createPeer<BridgeClient>({
      channel: editor,
      idPrefix: EDITOR_ID_PREFIX,
      caller: {
        kind: 'socket',
        caller: OWNER,
        receiver,
        ask: (sessionId, question, signal) => askEditor(peer, sessionId, question, signal),
      },
      dispatch: createDispatch({ rows: editorMethods(sessions, options.version) }),
      envelope: plainEnvelope,
      errors: bridgeErrors,
      cancelMethod: '$/cancel_request',
      limits: { callsInFlight: options.callsPerConnection },
      clock,
      makeRequestId: () => makeId('req_'),
      onUnexpectedError: options.onUnexpectedError,
    });
    void peer.closed.then(() => {
      isGone = true;
      orchestrator.forget(receiver);
    });
    overSocket.accept(app, { requestId: '', query: new URLSearchParams() }, OWNER);
  };
}

/**
 * Puts an agent's question for permission to the editor. It has as long as the turn has; an editor that cannot be asked, or
 * does not answer with one of the options, has allowed nothing.
 */
async function askEditor(
  peer: Peer,
  sessionId: string,
  { toolCallId, title, toolKind, input, options }: PermissionQuestion,
  signal: AbortSignal,
): Promise<string | undefined> {
  const toolCall = { toolCallId, title, kind: editorToolKind(toolKind), status: 'pending' };
  const params = {
    sessionId,
    toolCall: { ...toolCall, ...(input !== undefined && { rawInput: input }) },
    // Editors refuse the whole question when they do not know the kind of an option.
    options: options.filter(({ kind }) => PERMISSION_KINDS.has(kind)),
  };
  try {
    const { outcome } = asObject(await peer.request('session/request_permission', params, { signal }));
    const { outcome: kind, optionId } = asObject(outcome);
    return kind === 'selected' && typeof optionId === 'string' ? optionId : undefined;
  } catch (error) {
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

interface SplitChannel {
  /** Messages for the methods of the Agent Client Protocol. */
  readonly editor: MessageChannel;
  /** Everything else, what cannot be read included. */
  readonly app: MessageChannel;
}

/** The prefix of the ids of our own requests to the editor, which tells their answers from other messages. */
const EDITOR_ID_PREFIX = 'trestle-';

/**
 * One stream that carries two protocols: the Agent Client Protocol writes its names with slashes, the bridge's own method
 * family with dots. What is sent by either side goes out as it is.
 */
export function splitChannel(channel: MessageChannel): SplitChannel {
  let toEditor: ((text: string) => void) | undefined;
  let toApp: ((text: string) => void) | undefined;
  const endListeners: ((end: ChannelEnd) => void)[] = [];

  /** Only when both sides listen: until then the messages wait in the stream. */
  function listen(): void {
    if (toEditor === undefined || toApp === undefined) return;
    channel.onMessage((text) => (isForEditor(text) ? toEditor : toApp)?.(text));
    channel.onEnd((end) => {
      for (const listener of endListeners) listener(end);
    });
  }

  const shared = {
    send: channel.send,
    close: channel.close,
    ...(channel.isBehind !== undefined && { isBehind: channel.isBehind }),
    ...(channel.drained !== undefined && { drained: channel.drained }),
    onEnd: (listener: (end: ChannelEnd) => void) => void endListeners.push(listener),
  };
  return {
    editor: {
      ...shared,
      onMessage(listener) {
        toEditor = listener;
        listen();
      },
    },
    app: {
      ...shared,
      onMessage(listener) {
        toApp = listener;
        listen();
      },
    },
  };
}

function isForEditor(text: string): boolean {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch {
    return false;
  }
  const { method, id } = Object(message) as { readonly method?: unknown; readonly id?: unknown };
  // An answer belongs to the side that asked.
  if (method === undefined) return typeof id === 'string' && id.startsWith(EDITOR_ID_PREFIX);
  if (typeof method !== 'string') return false;
  return method === 'initialize' || method === 'authenticate' || method.includes('/') || method.startsWith('_');
}
