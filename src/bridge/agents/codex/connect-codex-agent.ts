import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import { type Clock, withinTime } from '../../../platform/clock/clock.ts';
import { AppError } from '../../../platform/errors/app-error.ts';
import { platformErrors } from '../../../platform/errors/error-table.ts';
import { bareEnvelope, RemoteError } from '../../../platform/json-rpc/envelope.ts';
import type { MessageChannel } from '../../../platform/json-rpc/message-channel.ts';
import { createPeer } from '../../../platform/json-rpc/peer.ts';
import type { Logger } from '../../../platform/log/logger.ts';
import type { ReachableMcpServer } from '../../sessions/mcp-servers.ts';
import {
  type AgentConnection,
  createAgentChannel,
  type LoginMethod,
  type PromptEnd,
  type PromptRequest,
} from '../agent-connection.ts';
import type { PermissionPolicy } from '../agent-provider.ts';
import { asObject, saysUnknownConversation, textOf } from '../agent-text.ts';
import { type PromptPart, textOfPart } from '../prompt-content.ts';
import { type CodexReader, createCodexReader, readRequest } from './codex-messages.ts';

interface CodexAgentOptions {
  readonly process: RunningProcess;
  readonly permissions: PermissionPolicy;
  /** Ours, by which Codex may know us. */
  readonly version: string;
  readonly clock: Clock;
  readonly logger: Pick<Logger, 'error'>;
}

interface Thread {
  /** As Codex names it. */
  model: string;
  /** The sandbox that it was opened with. */
  readonly sandbox: unknown;
  /** Whether its sandbox was made read-only since, for a turn that may only read. Undefined: the last change may have failed. */
  isNarrowed: boolean | undefined;
  /** How much it thought when it was opened; empty when Codex leaves that to the model. */
  readonly effortBefore: string;
  /** As the last turn asked for it. Empty: none did. Undefined: the last change may have failed. */
  effort: string | undefined;
}

interface RunningPrompt {
  readonly request: PromptRequest;
  readonly reader: CodexReader;
  readonly ended: PromiseWithResolvers<PromptEnd>;
  turnId: string | undefined;
  readonly stopped: AbortController;
}

type Fields = Readonly<Record<string, unknown>>;

const CALLS_IN_FLIGHT = 256;
const MAX_VERSION_CHARACTERS = 40;
const STEER_MS = 10_000;
const CODEX_LOGIN: LoginMethod = {
  id: 'codex-login',
  name: 'codex login',
  description: 'Opens a page in the browser, or asks for an API key.',
  terminal: { args: ['login'], isAppended: false, environment: {} },
};
/**
 * Codex asks before all but harmless commands, so that each decision is seen; what runs is kept to the folder. Where
 * agents may only read, its sandbox keeps all that it runs from writing anywhere, whatever is asked and answered.
 */
const THREAD_POLICIES: Readonly<Record<PermissionPolicy, object>> = {
  allow: { approvalPolicy: 'untrusted', sandbox: 'workspace-write' },
  deny: { approvalPolicy: 'untrusted', sandbox: 'read-only' },
};

const READ_ONLY_SANDBOX = { type: 'readOnly', networkAccess: false };
/** For a Codex that does not say which sandbox a thread has. */
const WRITABLE_SANDBOX = {
  type: 'workspaceWrite',
  writableRoots: [],
  networkAccess: false,
  excludeTmpdirEnvVar: false,
  excludeSlashTmp: false,
};

/** Sent for a thread that was opened without an effort, because an effort of Codex cannot be removed again. */
const USUAL_EFFORT = 'medium';

/** Ways to remove a thread, the most thorough first, and what each leaves. */
const REMOVALS: readonly (readonly [method: string, left: string | undefined])[] = [
  ['thread/delete', undefined],
  ['thread/archive', 'Codex has archived the thread, and not deleted it'],
];

/** Speaks the app-server protocol of Codex: JSON-RPC without its version member, a thread for each conversation. */
export async function connectCodexAgent(options: CodexAgentOptions): Promise<AgentConnection> {
  const prompts = new Map<string, RunningPrompt>();
  const threads = new Map<string, Thread>();
  const threadPolicy = THREAD_POLICIES[options.permissions];
  const agentChannel = createAgentChannel(options.process, options.clock);
  const channel: MessageChannel = {
    ...agentChannel,
    onMessage: (listener) => agentChannel.onMessage((_message, text) => listener(text)),
  };

  const peer = createPeer({
    channel,
    envelope: bareEnvelope,
    clock: options.clock,
    caller: undefined,
    errors: platformErrors,
    limits: { callsInFlight: CALLS_IN_FLIGHT },
    makeRequestId: () => '',
    onUnexpectedError: (error) => options.logger.error({ err: error }, 'message of codex not understood'),
    dispatch({ id, method, params }) {
      const fields = asObject(params);
      if (id === undefined) takeNotification(method, fields);
      else return answer(method, fields);
    },
  });

  function takeNotification(method: string, params: Fields): void {
    const prompt = prompts.get(textOf(params.threadId));
    if (prompt === undefined) return;
    if (method === 'model/rerouted') {
      const thread = threads.get(textOf(params.threadId));
      if (thread !== undefined) thread.model = textOf(params.toModel);
      prompt.request.usedModel(textOf(params.toModel));
    }
    const taken = prompt.reader.read(method, params);
    for (const event of taken.events) agentChannel.holdBack(prompt.request.report(event));
    if (taken.end !== undefined) prompt.ended.resolve(taken.end);
  }

  async function answer(method: string, params: Fields): Promise<unknown> {
    const prompt = prompts.get(textOf(params.threadId));
    const asked = readRequest(method, params, prompt?.reader.begun(params.itemId));
    if (asked === undefined) throw new AppError('METHOD_NOT_FOUND', { method });
    if (prompt === undefined) return asked.decline;
    const { signal } = prompt.stopped;
    const policy = signal.aborted ? 'deny' : options.permissions;
    const { decision, values, reason } = await prompt.request.permit(asked.question, policy, signal);
    if (decision === 'allowed' || decision === 'answered') return asked.accept(values ?? {});
    if (reason !== undefined) tellReason(prompt, reason);
    return asked.decline;
  }

  /** Sends the reason of a refusal as a message to the turn, because a refusal of Codex cannot contain one. */
  function tellReason(prompt: RunningPrompt, reason: string): void {
    // If Codex does not take the message, the reason is only in the updates.
    steer(prompt, `The user refused this request and says: ${reason}`).catch(() => undefined);
  }

  async function steer({ request, turnId }: RunningPrompt, text: string): Promise<void> {
    const input = [{ type: 'text', text, text_elements: [] }];
    await peer.request('turn/steer', { threadId: request.conversation, expectedTurnId: turnId, input });
  }

  /** Codex refuses what comes after the end of the turn, and in turns of some kinds. */
  async function takeFurther(prompt: RunningPrompt, text: string): Promise<boolean> {
    if (prompt.stopped.signal.aborted) return false;
    try {
      const taken = steer(prompt, text).then(() => true);
      return await withinTime(options.clock, STEER_MS, taken, () => false);
    } catch (error) {
      if (error instanceof RemoteError || error instanceof AppError) return false;
      throw error;
    }
  }

  /** The sandbox of a turn, where it is another than that of the turn before: Codex keeps it for later turns. */
  function sandboxFor(thread: Thread | undefined, isReadOnly: boolean): { readonly sandboxPolicy?: unknown } {
    if (thread === undefined || thread.isNarrowed === isReadOnly || options.permissions === 'deny') return {};
    thread.isNarrowed = undefined;
    return { sandboxPolicy: isReadOnly ? READ_ONLY_SANDBOX : (thread.sandbox ?? WRITABLE_SANDBOX) };
  }

  /** The effort of a turn, where it is another than that of the turn before: Codex keeps it for later turns. */
  function effortFor(thread: Thread | undefined, thinking: string): { readonly effort?: string } {
    if (thread === undefined || thread.effort === thinking) return {};
    thread.effort = undefined;
    return { effort: thinking || thread.effortBefore || USUAL_EFFORT };
  }

  async function startTurn(prompt: RunningPrompt): Promise<PromptEnd> {
    const { conversation: threadId, text, parts, folder, model, usedModel } = prompt.request;
    const { isReadOnly = false, thinking = '' } = prompt.request;
    const thread = threads.get(threadId);
    if (model !== '' && thread !== undefined) thread.model = model;
    usedModel(thread?.model ?? model);
    const answered = await peer.request('turn/start', {
      threadId,
      input: [{ type: 'text', text, text_elements: [] }, ...parts.map(toInput)],
      cwd: folder,
      ...chosen(model),
      ...sandboxFor(thread, isReadOnly),
      ...effortFor(thread, thinking),
    });
    if (thread !== undefined)
      Object.assign(thread, { isNarrowed: isReadOnly, effort: thinking } satisfies Partial<Thread>);
    prompt.turnId = textOf(fieldsAt(answered, 'turn').id);
    prompt.request.steerable?.((further) => takeFurther(prompt, further));
    if (prompt.stopped.signal.aborted) askToStop(prompt);
    return prompt.ended.promise;
  }

  function askToStop({ request, turnId }: RunningPrompt): void {
    if (turnId === undefined) return;
    peer.request('turn/interrupt', { threadId: request.conversation, turnId }).catch(() => undefined);
  }

  // A turn ends by a notification: it has no open request that would fail with the connection.
  void peer.closed.then(() => {
    for (const { ended } of prompts.values()) ended.reject(new AppError('CONNECTION_CLOSED'));
  });

  const introduced = await peer.request('initialize', {
    clientInfo: { name: 'trestle', title: 'Trestle', version: options.version },
    capabilities: null,
  });
  peer.notify('initialized');

  return {
    version: versionIn(textOf(asObject(introduced).userAgent)),
    loginMethods: [CODEX_LOGIN],
    async findMissingLogin() {
      try {
        const { account, requiresOpenaiAuth } = asObject(await peer.request('account/read', { refreshToken: false }));
        const isMissing = account === null && requiresOpenaiAuth === true;
        return isMissing ? 'run "codex login" as the user that runs Trestle' : undefined;
      } catch (error) {
        // Older versions do not know the method.
        if (error instanceof RemoteError) return undefined;
        throw error;
      }
    },
    continues: true,
    accepts: { images: true, texts: true },
    deletes: true,
    servers: { http: true, sse: false },
    async open(folder, model, servers) {
      const params = { cwd: folder, ...threadPolicy, ...chosen(model), ...configOf(servers) };
      const answered = await peer.request('thread/start', params);
      const { id } = fieldsAt(answered, 'thread');
      if (typeof id !== 'string') throw new Error('it opened a thread without an id');
      threads.set(id, readThread(answered));
      return id;
    },
    async resume(conversation, folder, servers) {
      const resumed = await peer.request('thread/resume', {
        threadId: conversation,
        cwd: folder,
        excludeTurns: true,
        ...threadPolicy,
        ...configOf(servers),
      });
      threads.set(conversation, readThread(resumed));
    },
    async fork(conversation, folder, servers) {
      const own = { ...threadPolicy, ...configOf(servers) };
      const params = { threadId: conversation, cwd: folder, excludeTurns: true, ...own };
      const answered = await peer.request('thread/fork', params);
      const { id } = fieldsAt(answered, 'thread');
      if (typeof id !== 'string') throw new Error('it copied a thread without an id');
      threads.set(id, readThread(answered));
      return id;
    },
    async prompt(request) {
      const prompt: RunningPrompt = {
        request,
        reader: createCodexReader(),
        ended: Promise.withResolvers(),
        turnId: undefined,
        stopped: new AbortController(),
      };
      // The connection may end before this promise is awaited.
      prompt.ended.promise.catch(() => undefined);
      prompts.set(request.conversation, prompt);
      try {
        return await startTurn(prompt);
      } catch (error) {
        if (!(error instanceof RemoteError) || !saysUnknownConversation(error.rpcCode, error.remoteMessage))
          throw error;
        return { kind: 'lost', detail: error.remoteMessage };
      } finally {
        prompt.stopped.abort();
        prompts.delete(request.conversation);
      }
    },
    interrupt(conversation) {
      const prompt = prompts.get(conversation);
      if (prompt === undefined) return;
      prompt.stopped.abort();
      askToStop(prompt);
    },
    async close(conversation) {
      threads.delete(conversation);
      const threadId = conversation;
      await peer.request('thread/unsubscribe', { threadId }).catch(() => undefined);
      for (const [method, left] of REMOVALS) {
        try {
          await peer.request(method, { threadId });
          return left;
        } catch (error) {
          if (!(error instanceof RemoteError)) throw error;
          // A thread that never had a turn is stored nowhere.
          if (saysUnknownConversation(error.rpcCode, error.remoteMessage)) return undefined;
        }
      }
      return 'Codex could neither delete nor archive the thread';
    },
    closed: peer.closed,
  };
}

/** The servers as settings of the thread, added to those that Codex has of its own. A dot in a key would end the name. */
function configOf(servers: readonly ReachableMcpServer[]): { readonly config?: object } {
  if (servers.length === 0) return {};
  const asRecord = (pairs: readonly { readonly name: string; readonly value: string }[]) =>
    Object.fromEntries(pairs.map(({ name, value }) => [name, value]));
  const config: Record<string, object> = {};
  for (const server of servers) {
    const plain = `mcp_servers.${server.name.replaceAll(/[^\w-]/g, '_')}`;
    const key = Object.hasOwn(config, plain) ? `${plain}_${Object.keys(config).length}` : plain;
    config[key] =
      server.type === 'stdio'
        ? { command: server.command, args: server.args, env: asRecord(server.env) }
        : { url: server.url, http_headers: asRecord(server.headers) };
  }
  return { config };
}

/** Reads `codex_cli_rs/0.166.0 (Linux; x86_64)`. */
function versionIn(userAgent: string): string {
  const [version = ''] = (userAgent.split('/', 2)[1] ?? '').split(' ', 1);
  return /^\d/.test(version) ? version.slice(0, MAX_VERSION_CHARACTERS) : '';
}

/** A file as Codex takes it. */
function toInput(part: PromptPart): object {
  if (part.kind === 'image') return { type: 'image', url: `data:${part.contentType};base64,${part.data}` };
  return { type: 'text', text: textOfPart(part), text_elements: [] };
}

function chosen(model: string): { readonly model?: string } {
  return model === '' ? {} : { model };
}

/** Reads the answer to opening or taking up a thread. */
function readThread(answer: unknown): Thread {
  const { model, sandbox, reasoningEffort } = asObject(answer);
  return { model: textOf(model), sandbox, isNarrowed: false, effortBefore: textOf(reasoningEffort), effort: '' };
}

function fieldsAt(value: unknown, name: string): Fields {
  return asObject(asObject(value)[name]);
}
