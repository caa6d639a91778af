import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import { plainEnvelope } from '../../platform/json-rpc/envelope.ts';
import type { ChannelEnd, MessageChannel } from '../../platform/json-rpc/message-channel.ts';
import {
  createDispatch,
  type Dispatch,
  defineMethod,
  type MethodCall,
  type MethodRow,
} from '../../platform/json-rpc/method-table.ts';
import { createPeer, type Peer } from '../../platform/json-rpc/peer.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { BridgeCaller } from '../access.ts';
import type { PermissionQuestion, PermissionReply } from '../agents/agent-provider.ts';
import { asObject } from '../agents/agent-text.ts';
import { findWrongValue, toSchema } from '../agents/question-form.ts';
import { type BridgeClient, channelSink, NO_RESUME } from '../bridge-client.ts';
import { StartParams } from '../contract/session.ts';
import type { QuestionForm, QuestionValues } from '../contract/session-update.ts';
import { bridgeErrors } from '../errors.ts';
import { MAIN } from '../principal.ts';
import type { RpcOverSocket } from '../rpc-over-socket.ts';
import type { SessionPast } from '../sessions/create-sessions.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import {
  createEditorSessions,
  type EditorSessions,
  type EditorSessionsOptions,
  editorToolKind,
} from './editor-sessions.ts';

export interface RpcOverStdioOptions
  extends Pick<EditorSessionsOptions, 'agents' | 'checkDirectory' | 'takesServers'>,
    Pick<Runtime, 'clock' | 'makeId'> {
  readonly version: string;
  readonly dispatch: Dispatch<BridgeClient>;
  readonly overSocket: RpcOverSocket;
  readonly orchestrator: Pick<SessionOrchestrator, 'follow' | 'forget'>;
  past(principal: Principal, sessionId: string): Promise<SessionPast | undefined>;
  readonly callsPerConnection: number;
  readonly logger: Pick<Logger, 'warn'>;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** Serves a channel. `agent`: the agent of the editor's new sessions, unless the editor chooses another one. Empty: by routing. */
export type RpcOverStdio = (channel: MessageChannel, agent: string) => void;

const PERMISSION_KINDS: ReadonlySet<string> = new Set(['allow_once', 'allow_always', 'reject_once', 'reject_always']);

/** Anyone who can start the program already has all its rights. */
const OWNER: BridgeCaller = { principal: MAIN };

/** Serves the bridge's own methods and the Agent Client Protocol on one stream. */
export function createRpcOverStdio(options: RpcOverStdioOptions): RpcOverStdio {
  const { dispatch, overSocket, orchestrator, clock, makeId } = options;

  return (channel, agent) => {
    const { editor, app } = splitChannel(channel);
    let isGone = false;
    let takesForms = false;
    const sink = channelSink(channel, () => isGone, {
      update: ({ text }) => sessions.update(JSON.parse(text) as Readonly<Record<string, unknown>>),
    });
    const sessions = createEditorSessions({
      dispatch,
      agents: options.agents,
      agent,
      makeId,
      checkDirectory: options.checkDirectory,
      takesServers: options.takesServers,
      past: (sessionId) => options.past(OWNER.principal, sessionId),
      replay: (sessionId) => orchestrator.follow(OWNER.principal, sessionId, 0, sink),
      send: (sessionId, update) => peer.notify('session/update', { sessionId, update }),
      warn: (message) => options.logger.warn({}, message),
    });
    const peer: Peer = createPeer<BridgeClient>({
      channel: editor,
      idPrefix: EDITOR_ID_PREFIX,
      caller: {
        caller: OWNER,
        sink,
        stays: true,
        resume: NO_RESUME,
        ask: (sessionId, question, signal) => askEditor(peer, sessionId, question, signal, takesForms),
      },
      dispatch: createDispatch({
        rows: editorMethods(sessions, options.version, (capabilities) => {
          takesForms = (asObject(asObject(capabilities).elicitation).form ?? null) !== null;
        }),
      }),
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
      orchestrator.forget(sink);
    });
    overSocket.accept(app, { requestId: '', query: new URLSearchParams() }, OWNER);
  };
}

/**
 * Forwards an agent's request for permission to the editor, which may take as long as the turn. If the editor cannot be asked, or its
 * answer is not one of the options, nothing is allowed.
 */
async function askEditor(
  peer: Peer,
  sessionId: string,
  question: PermissionQuestion,
  signal: AbortSignal,
  takesForms: boolean,
): Promise<PermissionReply> {
  const { toolCallId, title, toolKind, input, options, form } = question;
  if (form !== undefined)
    return takesForms ? askForm(peer, sessionId, question, form, signal) : { optionId: undefined };
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
    return { optionId: kind === 'selected' && typeof optionId === 'string' ? optionId : undefined };
  } catch (error) {
    if (error instanceof AppError) return { optionId: undefined };
    throw error;
  }
}

/** Forwards a question with a form to the editor. Values that do not fit the form are ignored. */
async function askForm(
  peer: Peer,
  sessionId: string,
  { toolCallId, title }: PermissionQuestion,
  form: QuestionForm,
  signal: AbortSignal,
): Promise<PermissionReply> {
  const tool = toolCallId === '' ? {} : { toolCallId };
  const params = { sessionId, ...tool, mode: 'form', message: title, requestedSchema: toSchema(form) };
  try {
    const { action, content } = asObject(await peer.request('elicitation/create', params, { signal }));
    const values = asObject(content) as QuestionValues;
    const isAnswer = action === 'accept' && findWrongValue(form, values) === undefined;
    return { optionId: undefined, ...(isAnswer && { values }) };
  } catch (error) {
    if (error instanceof AppError) return { optionId: undefined };
    throw error;
  }
}

interface SplitChannel {
  /** Messages for the methods of the Agent Client Protocol. */
  readonly editor: MessageChannel;
  /** All other messages, also those that cannot be parsed. */
  readonly app: MessageChannel;
}

/** The prefix of the ids of our own requests to the editor, which tells their answers from other messages. */
const EDITOR_ID_PREFIX = 'trestle-';

/**
 * Splits a stream that carries two protocols: method names of the Agent Client Protocol have slashes, those of the bridge have dots.
 * Messages that either side sends are written unchanged.
 */
export function splitChannel(channel: MessageChannel): SplitChannel {
  let toEditor: ((text: string) => void) | undefined;
  let toApp: ((text: string) => void) | undefined;
  const endListeners: ((end: ChannelEnd) => void)[] = [];

  /** Starts to read when both sides listen; until then, messages stay in the stream. */
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

type Call = MethodCall<BridgeClient>;

/** The only version of the Agent Client Protocol that is spoken here. */
const PROTOCOL_VERSION = 1;

const sessionId = Type.String({ minLength: 1, maxLength: 256 });
const cwd = Type.String({ minLength: 1, description: 'An absolute path inside the allowed roots.' });
const { mcpServers } = StartParams.properties;
const Answer = Type.Object({});

/** The agent's side of the Agent Client Protocol: what an editor may call. */
function editorMethods(
  sessions: EditorSessions,
  version: string,
  introduced: (capabilities: unknown) => void,
): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'initialize',
      summary: 'What this agent can do.',
      params: Type.Object({ protocolVersion: Type.Number(), clientCapabilities: Type.Optional(Type.Unknown()) }),
      result: Answer,
      handle: ({ clientCapabilities }) => {
        introduced(clientCapabilities);
        return {
          protocolVersion: PROTOCOL_VERSION,
          agentInfo: { name: 'trestle', title: 'Trestle', version },
          agentCapabilities: {
            loadSession: true,
            promptCapabilities: { embeddedContext: true, image: true },
            mcpCapabilities: { http: true, sse: false },
            sessionCapabilities: { resume: {}, close: {} },
          },
          authMethods: [],
        };
      },
    }),
    defineMethod({
      name: 'authenticate',
      summary: 'Nothing to do: who can start this program may use it.',
      params: Type.Object({}),
      result: Answer,
      handle: () => ({}),
    }),
    defineMethod({
      name: 'session/new',
      summary: 'Opens a session in a folder.',
      params: Type.Object({ cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.open(params.cwd, params.mcpServers ?? []),
    }),
    defineMethod({
      name: 'session/load',
      summary: 'Takes up an earlier session, and tells first what was said in it.',
      params: Type.Object({ sessionId, cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.takeUp(params.sessionId, params.cwd, params.mcpServers ?? [], true),
    }),
    defineMethod({
      name: 'session/resume',
      summary: 'Takes up an earlier session without telling it again.',
      params: Type.Object({ sessionId, cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.takeUp(params.sessionId, params.cwd, params.mcpServers ?? [], false),
    }),
    defineMethod({
      name: 'session/set_config_option',
      summary: 'Chooses the agent of a session that has not begun.',
      params: Type.Object({ sessionId, configId: Type.String(), value: Type.Unknown() }),
      result: Answer,
      handle: (params) => sessions.choose(params.sessionId, params.configId, params.value),
    }),
    defineMethod({
      name: 'session/prompt',
      summary: 'Runs one turn.',
      params: Type.Object({ sessionId, prompt: Type.Array(Type.Unknown(), { minItems: 1 }) }),
      result: Answer,
      handle: (params, call: Call) => sessions.prompt(params.sessionId, params.prompt, call),
    }),
    defineMethod({
      name: 'session/cancel',
      summary: 'Stops the turn that runs.',
      params: Type.Object({ sessionId }),
      result: Answer,
      handle: (params, call: Call) => sessions.cancel(params.sessionId, call),
    }),
    defineMethod({
      name: 'session/close',
      summary: 'Ends a session and removes its state.',
      params: Type.Object({ sessionId }),
      result: Answer,
      handle: (params, call: Call) => sessions.close(params.sessionId, call),
    }),
  ];
}
