import type { ClientContext } from '@agentclientprotocol/sdk';
import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../platform/clock/clock.ts';
import {
  type AgentConnection,
  createAgentChannel,
  type PermissionPolicy,
  type PromptEnd,
  type PromptRequest,
} from '../agent-connection.ts';
import { asObject, saysUnknownConversation, shownText, textOf } from '../agent-text.ts';
import {
  acpQuirks,
  choosePermission,
  chosenPermission,
  findModel,
  findReadOnlyMode,
  readChoice,
  readPermissionOptions,
  type SessionChoice,
} from './acp-choices.ts';
import { createAcpStream, createUpdateReader, readUsage, type UpdateReader } from './acp-messages.ts';

export interface AcpAgentOptions {
  readonly process: RunningProcess;
  readonly permissions: PermissionPolicy;
  /** Ours, by which the agent may know us. */
  readonly version: string;
  readonly clock: Clock;
}

interface OpenConversation {
  readonly folder: string;
  readonly models: SessionChoice | undefined;
  /** The mode that it must stay in, where agents may only read. Undefined: there is none, or none is needed. */
  readonly readOnlyMode: string | undefined;
  /** What it has cost; undefined for one from before, until the agent says so. */
  readonly costUsd: number | undefined;
}

interface RunningPrompt {
  readonly request: PromptRequest;
  readonly updates: UpdateReader;
  /** Whether the agent has done anything for it. */
  worked: boolean;
  readonly stopped: AbortController;
}

type Fields = Readonly<Record<string, unknown>>;

const MAX_SHOWN_MODELS = 20;
const MAX_ADVICE = 300;
/** The protocol's own code. */
const AUTHENTICATION_REQUIRED = -32000;

/**
 * Speaks the Agent Client Protocol (version 1) with an agent. No file or terminal capability is announced: agents then
 * use the machine themselves, in the folder of the conversation, and ask for permission as they would at a terminal.
 */
export async function connectAcpAgent(options: AcpAgentOptions): Promise<AgentConnection> {
  const { client, methods, PROTOCOL_VERSION } = await import('@agentclientprotocol/sdk');
  const prompts = new Map<string, RunningPrompt>();
  const conversations = new Map<string, OpenConversation>();

  const channel = createAgentChannel(options.process, options.clock);
  const stream = createAcpStream(channel, (params) => {
    const { sessionId, update } = asObject(params);
    if (options.permissions === 'deny') keepReadOnly(textOf(sessionId), update);
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined) return;
    const event = prompt.updates.read(update);
    if (event === undefined) return;
    prompt.worked = true;
    channel.holdBack(prompt.request.report(event));
  });
  const connection = client({ name: 'trestle' })
    .onRequest(methods.client.session.requestPermission, asFields, ({ params }) => answerPermission(params))
    .connect(stream);
  const { agent } = connection;

  /** Questions without a running turn, or after it was stopped, are answered as cancelled (as the protocol asks). */
  async function answerPermission({ sessionId, toolCall, options: offered }: Fields) {
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined || prompt.stopped.signal.aborted) return { outcome: { outcome: 'cancelled' } };
    prompt.worked = true;
    const { toolCallId, title: given, kind, rawInput } = asObject(toolCall);
    const title = typeof given === 'string' && given !== '' ? given : 'a tool';
    const choices = readPermissionOptions(offered);
    const { ask } = prompt.request;
    const question = { toolCallId: textOf(toolCallId), title, toolKind: textOf(kind) || 'other', options: choices };
    const { decision, optionId } =
      ask === undefined || options.permissions === 'deny'
        ? choosePermission(options.permissions, choices)
        : chosenPermission(await ask({ ...question, input: rawInput }, prompt.stopped.signal), choices);
    prompt.request.report({
      kind: 'permission',
      title,
      decision,
      ...(typeof toolCallId === 'string' && { toolCallId }),
    });
    return { outcome: optionId === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId } };
  }

  /** Puts a conversation back into its read-only mode, should the agent or its model leave it. */
  function keepReadOnly(conversation: string, update: unknown): void {
    const mode = conversations.get(conversation)?.readOnlyMode;
    const { sessionUpdate, currentModeId } = asObject(update);
    if (sessionUpdate !== 'current_mode_update' || mode === undefined || currentModeId === mode) return;
    setChoice(agent, conversation, 'mode', { kind: 'method' }, mode).catch(() => {
      // A conversation that cannot be kept from writing is not continued.
      agent.notify(methods.agent.session.cancel, { sessionId: conversation }).catch(() => undefined);
    });
  }

  const initialized = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
    clientInfo: { name: 'trestle', title: 'Trestle', version: options.version },
  });
  if (initialized.protocolVersion !== PROTOCOL_VERSION) {
    throw new Error(`it speaks version ${initialized.protocolVersion} of the protocol, not ${PROTOCOL_VERSION}`);
  }
  const { agentCapabilities = {}, agentInfo } = initialized;
  const { loadSession = false, sessionCapabilities } = agentCapabilities;
  const deletes = isOffered(sessionCapabilities?.delete);
  const canResume = isOffered(sessionCapabilities?.resume);
  const { keepsConversations } = acpQuirks(agentInfo?.name ?? '');

  /** Keeps what an opened session offers, and makes it read-only where agents may only read. */
  async function take(conversation: string, folder: string, answer: unknown, costUsd?: number): Promise<void> {
    const modes = options.permissions === 'deny' ? readChoice(answer, 'mode') : undefined;
    const readOnlyMode = modes === undefined ? undefined : findReadOnlyMode(modes);
    if (modes !== undefined && readOnlyMode !== undefined && modes.current !== readOnlyMode) {
      await setChoice(agent, conversation, 'mode', modes.way, readOnlyMode);
    }
    conversations.set(conversation, { folder, models: readChoice(answer, 'model'), readOnlyMode, costUsd });
  }

  /** Returns why the turn cannot run on the model that it asks for; undefined when it can. */
  async function chooseModel({ conversation, model, usedModel }: PromptRequest): Promise<string | undefined> {
    const open = conversations.get(conversation);
    const choice = open?.models;
    if (model === '' || model === choice?.current) {
      usedModel(choice?.current ?? '');
      return undefined;
    }
    if (open === undefined || choice === undefined) {
      return `This agent does not let its model be chosen, so it cannot use "${model}". Leave the model out.`;
    }
    const found = findModel(choice, model);
    if (found === undefined) {
      const offered = choice.values.slice(0, MAX_SHOWN_MODELS).join(', ');
      return `This agent does not offer the model "${model}". It offers: ${offered}${choice.values.length > MAX_SHOWN_MODELS ? ', …' : ''}.`;
    }
    if (found !== choice.current) {
      await setChoice(agent, conversation, 'model', choice.way, found);
      conversations.set(conversation, { ...open, models: { ...choice, current: found } });
    }
    usedModel(found);
    return undefined;
  }

  function mentionWriting({ conversation, report }: PromptRequest): void {
    if (options.permissions !== 'deny' || conversations.get(conversation)?.readOnlyMode !== undefined) return;
    report({ kind: 'status', text: 'This agent has no read-only mode: what it asks for is denied.' });
  }

  /** The protocol gives a conversation its folder once and for all. */
  function mentionFolder({ conversation, folder, report }: PromptRequest): void {
    const own = conversations.get(conversation)?.folder;
    if (own === undefined || own === folder) return;
    report({ kind: 'status', text: `The conversation stays in ${own}: this agent cannot move it.` });
  }

  /** The cost of the turn that has just ended: agents tell that of the whole conversation. */
  function costOf(conversation: string, total: number | undefined): number | undefined {
    const open = conversations.get(conversation);
    if (open === undefined || total === undefined) return undefined;
    conversations.set(conversation, { ...open, costUsd: total });
    return open.costUsd === undefined ? undefined : Math.max(0, total - open.costUsd);
  }

  async function run(prompt: RunningPrompt): Promise<PromptEnd> {
    const { conversation, text } = prompt.request;
    mentionFolder(prompt.request);
    mentionWriting(prompt.request);
    const refusal = await chooseModel(prompt.request);
    if (refusal !== undefined) return { kind: 'failed', error: refusal };
    const response = await agent.request(methods.agent.session.prompt, {
      sessionId: conversation,
      prompt: [{ type: 'text', text }],
    });
    const usage = readUsage(response, prompt.updates.tokensInUse());
    const costUsd = costOf(conversation, prompt.updates.costUsd());
    const used =
      usage === undefined && costUsd === undefined
        ? {}
        : { usage: { ...usage, ...(costUsd !== undefined && { costUsd }) } };
    if (response.stopReason === 'cancelled') return { kind: 'cancelled', ...used };
    return { kind: 'completed', stopReason: response.stopReason, ...used };
  }

  return {
    version: shownText(agentInfo?.version),
    async findMissingLogin(folder) {
      const ways = initialized.authMethods ?? [];
      if (ways.length === 0) return undefined;
      try {
        const { sessionId } = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
        if (deletes) await agent.request(methods.agent.session.delete, { sessionId }).catch(() => undefined);
        return undefined;
      } catch (error) {
        if (asObject(error).code !== AUTHENTICATION_REQUIRED) return undefined;
        const names = ways.map(({ name, description }) => (description ? `${name} (${description})` : name));
        return `log in with the agent's own command, as the user that runs Trestle: ${names.join('; ').slice(0, MAX_ADVICE)}`;
      }
    },
    deletes,
    continues: keepsConversations && (canResume || loadSession),
    async open(folder) {
      const answer = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
      await take(answer.sessionId, folder, answer, 0);
      return answer.sessionId;
    },
    async resume(conversation, folder) {
      const request = { sessionId: conversation, cwd: folder, mcpServers: [] };
      // Resuming does not repeat the whole conversation first, as loading does.
      const method = canResume ? methods.agent.session.resume : methods.agent.session.load;
      await take(conversation, folder, await agent.request(method, request));
    },
    async prompt(request) {
      const stopped = new AbortController();
      const prompt: RunningPrompt = { request, updates: createUpdateReader(), worked: false, stopped };
      prompts.set(request.conversation, prompt);
      try {
        return await run(prompt);
      } catch (error) {
        const detail = error instanceof Error ? error.message : String(error);
        if (prompt.worked || !saysUnknownConversation(asObject(error).code, detail)) throw error;
        return { kind: 'lost', detail };
      } finally {
        stopped.abort();
        prompts.delete(request.conversation);
      }
    },
    interrupt(conversation) {
      prompts.get(conversation)?.stopped.abort();
      agent.notify(methods.agent.session.cancel, { sessionId: conversation }).catch(() => undefined);
    },
    async close(conversation) {
      const isOpen = conversations.delete(conversation);
      const sessionId = conversation;
      // An agent that cannot close it may still be able to delete it.
      const closed = isOpen && isOffered(sessionCapabilities?.close);
      if (closed) await agent.request(methods.agent.session.close, { sessionId }).catch(() => undefined);
      if (!deletes) return 'the agent offers no way to delete a conversation';
      try {
        await agent.request(methods.agent.session.delete, { sessionId });
        return undefined;
      } catch (error) {
        const detail = error instanceof Error ? error.message : String(error);
        if (saysUnknownConversation(asObject(error).code, detail)) return undefined;
        return `the agent could not delete it: ${detail}`;
      }
    },
    closed: connection.closed,
  };
}

function setChoice(
  agent: ClientContext,
  sessionId: string,
  kind: 'model' | 'mode',
  way: SessionChoice['way'],
  value: string,
): Promise<unknown> {
  if (way.kind === 'option') {
    return agent.request('session/set_config_option', { sessionId, configId: way.configId, value });
  }
  return agent.request(`session/set_${kind}`, { sessionId, [`${kind}Id`]: value });
}

/** A capability is there when its member is, whatever stands in it. */
function isOffered(capability: unknown): boolean {
  return capability !== undefined && capability !== null;
}

function asFields(params: unknown): Fields {
  return asObject(params);
}
