import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../platform/clock/clock.ts';
import { traceparentOf } from '../../../platform/telemetry/spans.ts';
import type { ReachableMcpServer } from '../../sessions/mcp-servers.ts';
import {
  type AgentConnection,
  createAgentChannel,
  type PromptEnd,
  type PromptRequest,
  readLoginMethods,
} from '../agent-connection.ts';
import type { AgentOffers, PermissionPolicy } from '../agent-provider.ts';
import { asObject, describeFailure, saysUnknownConversation, shownText, textOf } from '../agent-text.ts';
import { formQuestion, readForm } from '../question-form.ts';
import {
  acpQuirks,
  createAcpStream,
  createUpdateReader,
  findModel,
  findReadOnlyMode,
  isOffered,
  readChoice,
  readChoices,
  readCommands,
  readPermissionOptions,
  readUsage,
  type SessionChoices,
  setChoice,
  toBlock,
  toServer,
  type UpdateReader,
} from './acp-messages.ts';

export interface AcpAgentOptions {
  readonly process: RunningProcess;
  readonly permissions: PermissionPolicy;
  /** Ours, by which the agent may know us. */
  readonly version: string;
  readonly clock: Clock;
}

interface OpenConversation extends SessionChoices {
  readonly folder: string;
  readonly commands: AgentOffers['commands'];
  /** The mode that it was in before a turn that may only read. */
  readonly modeBefore?: string;
  /** How much it thought before a turn chose that. */
  readonly thinkingBefore?: string;
  /** What it has cost; undefined for one from before, until the agent says so. */
  readonly costUsd: number | undefined;
}

interface RunningPrompt {
  readonly request: PromptRequest;
  readonly updates: UpdateReader;
  /** Whether the agent has done anything for it. */
  worked: boolean;
  /** Whether the agent has asked anything: only questions listen to `stopped`. */
  asked: boolean;
  readonly stopped: AbortController;
}

type Fields = Readonly<Record<string, unknown>>;

const MAX_SHOWN_MODELS = 20;
const MAX_ADVICE = 300;
const MAX_EARLY = 16;
/** The protocol's own code. */
const AUTHENTICATION_REQUIRED = -32000;

/** The SDK passes on whatever an agent answers. */
function anObject<Answer>(method: string, answer: Answer): Answer {
  if (typeof answer === 'object' && answer !== null) return answer;
  throw new Error(`it answered ${method} with something that is not an object`);
}

/**
 * Speaks the Agent Client Protocol (version 1) with an agent. No file or terminal capability is announced: agents then
 * use the machine themselves, in the folder of the conversation, and ask for permission as they would at a terminal.
 */
export async function connectAcpAgent(options: AcpAgentOptions): Promise<AgentConnection> {
  const { client, methods, PROTOCOL_VERSION } = await import('@agentclientprotocol/sdk');
  const prompts = new Map<string, RunningPrompt>();
  const conversations = new Map<string, OpenConversation>();
  /** Commands of conversations that are about to be opened: an agent may tell them before it answers. */
  const early = new Map<string, AgentOffers['commands']>();

  const channel = createAgentChannel(options.process, options.clock);
  const stream = createAcpStream(channel, (params) => {
    const { sessionId, update } = asObject(params);
    noteOffers(textOf(sessionId), asObject(update));
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined) return;
    const event = prompt.updates.read(update);
    if (event === undefined) return;
    prompt.worked = true;
    channel.holdBack(prompt.request.report(event));
  });
  const connection = client({ name: 'trestle' })
    .onRequest(methods.client.session.requestPermission, asObject, ({ params }) => answerPermission(params))
    .onRequest(methods.client.elicitation.create, asObject, ({ params }) => answerQuestion(params))
    .connect(stream);
  const { agent } = connection;

  /** Questions without a running turn, or after it was stopped, are answered as cancelled (as the protocol asks). */
  async function answerPermission({ sessionId, toolCall, options: offered }: Fields) {
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined || prompt.stopped.signal.aborted) return { outcome: { outcome: 'cancelled' } };
    prompt.worked = true;
    prompt.asked = true;
    const question = { ...prompt.updates.asked(asObject(toolCall)), options: readPermissionOptions(offered) };
    const { request, stopped } = prompt;
    const { decision, optionId, reason } = await request.permit(question, options.permissions, stopped.signal);
    return {
      outcome: optionId === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId },
      // The protocol has no member for a reason; agents may look for it here.
      ...(decision === 'denied' && reason !== undefined && { _meta: { reason } }),
    };
  }

  /** As for permission: a question that belongs to no running turn is answered as cancelled. */
  async function answerQuestion({ sessionId, toolCallId, mode, message, requestedSchema }: Fields) {
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined || prompt.stopped.signal.aborted) return { action: 'cancel' };
    prompt.worked = true;
    prompt.asked = true;
    const form = mode === 'form' ? readForm(requestedSchema) : undefined;
    const question = formQuestion(textOf(toolCallId), textOf(message), form);
    const { values, reason } = await prompt.request.permit(question, options.permissions, prompt.stopped.signal);
    if (values !== undefined) return { action: 'accept', content: values };
    if (prompt.stopped.signal.aborted) return { action: 'cancel' };
    return { action: 'decline', ...(reason !== undefined && { _meta: { reason } }) };
  }

  function mayOnlyRead({ isReadOnly }: PromptRequest): boolean {
    return isReadOnly === true || options.permissions === 'deny';
  }

  /** Follows what a conversation offers, also between its turns. */
  function noteOffers(conversation: string, update: Fields): void {
    if (update.sessionUpdate === 'current_mode_update') noteMode(conversation, update.currentModeId);
    if (update.sessionUpdate === 'config_option_update') noteOptions(conversation, update);
    if (update.sessionUpdate !== 'available_commands_update' || !Array.isArray(update.availableCommands)) return;
    const commands = readCommands(update.availableCommands);
    const open = conversations.get(conversation);
    if (open === undefined) early.set(conversation, commands);
    else conversations.set(conversation, { ...open, commands });
    const [oldest] = early.keys();
    if (early.size > MAX_EARLY && oldest !== undefined) early.delete(oldest);
  }

  /** Follows the mode of a conversation. Puts it back into its read-only mode, should it leave it where it may only read. */
  function noteMode(conversation: string, currentModeId: unknown): void {
    if (typeof currentModeId !== 'string') return;
    const open = conversations.get(conversation);
    if (open?.modes === undefined) return;
    conversations.set(conversation, { ...open, modes: { ...open.modes, current: currentModeId } });
    const request = prompts.get(conversation)?.request;
    const isKept = request === undefined ? options.permissions === 'deny' : mayOnlyRead(request);
    const mode = isKept ? findReadOnlyMode(open.modes) : undefined;
    if (mode === undefined || currentModeId === mode) return;
    setChoice(agent, conversation, 'mode', open.modes.way, mode).catch(() => {
      // A conversation that cannot be kept from writing is not continued.
      agent.notify(methods.agent.session.cancel, { sessionId: conversation }).catch(() => undefined);
    });
  }

  /** Follows the options of a conversation: an agent that offers its modes as one of them tells a change of the mode there. */
  function noteOptions(conversation: string, update: Fields): void {
    const open = conversations.get(conversation);
    if (open === undefined) return;
    const told = readChoices(update);
    conversations.set(conversation, { ...open, ...told });
    noteMode(conversation, told.modes?.current);
  }

  const answered = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    // What a terminal is needed for is shown to people as a command.
    clientCapabilities: { elicitation: { form: {} }, auth: { terminal: true } },
    clientInfo: { name: 'trestle', title: 'Trestle', version: options.version },
  });
  const initialized = anObject('initialize', answered);
  if (initialized.protocolVersion !== PROTOCOL_VERSION) {
    throw new Error(`it speaks version ${initialized.protocolVersion} of the protocol, not ${PROTOCOL_VERSION}`);
  }
  const { agentCapabilities = {}, agentInfo } = initialized;
  const { loadSession = false, sessionCapabilities, promptCapabilities, mcpCapabilities } = agentCapabilities;
  const deletes = isOffered(sessionCapabilities?.delete);
  const canResume = isOffered(sessionCapabilities?.resume);
  const { keepsConversations } = acpQuirks(agentInfo?.name ?? '');

  /** Keeps what an opened session offers. */
  function take(conversation: string, folder: string, answer: unknown, costUsd?: number): void {
    const commands = early.get(conversation) ?? [];
    early.delete(conversation);
    conversations.set(conversation, { folder, ...readChoices(answer), commands, costUsd });
  }

  /**
   * Puts the conversation into the mode that was chosen, for a turn that may only read into its read-only mode, and back for
   * the next one. Returns why the turn cannot run in its mode; undefined when it can.
   */
  async function chooseMode(request: PromptRequest): Promise<string | undefined> {
    const { conversation, report, mode: chosen } = request;
    const open = conversations.get(conversation);
    const readOnly = open?.modes === undefined ? undefined : findReadOnlyMode(open.modes);
    const isKept = mayOnlyRead(request);
    if (isKept && readOnly === undefined) {
      report({ kind: 'status', text: 'This agent has no read-only mode: what it asks for is denied.' });
    }
    if (chosen !== undefined && open?.modes?.values.includes(chosen) !== true) {
      const offered = open?.modes?.values.join(', ') || 'none';
      return `This agent does not have the mode "${chosen}". Its modes: ${offered}. Choose another one for the session.`;
    }
    if (open?.modes === undefined) return undefined;
    const { current, way } = open.modes;
    const wanted = (isKept ? readOnly : (chosen ?? open.modeBefore)) ?? current;
    if (wanted !== current) await setChoice(agent, conversation, 'mode', way, wanted);
    const { modeBefore = current, ...rest } = open;
    conversations.set(conversation, {
      ...rest,
      modes: { ...open.modes, current: wanted },
      ...(isKept && { modeBefore }),
    });
    return undefined;
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
      return `This agent does not offer the model "${model}". Its models: ${offered}${choice.values.length > MAX_SHOWN_MODELS ? ', …' : ''}.`;
    }
    if (found !== choice.current) {
      const answer = await setChoice(agent, conversation, 'model', choice.way, found);
      // Each model has levels of its own.
      const isTold = Array.isArray(asObject(answer).configOptions);
      const thinking = isTold ? readChoice(answer, 'thought_level') : open.thinking;
      conversations.set(conversation, { ...open, models: { ...choice, current: found }, thinking });
    }
    usedModel(found);
    return undefined;
  }

  /** Makes the model think as much as the turn asks for, and for the next one that does not ask, as before. Returns as `chooseModel`. */
  async function chooseThinking({ conversation, thinking: chosen }: PromptRequest): Promise<string | undefined> {
    const open = conversations.get(conversation);
    const { current = '', values = [], way } = open?.thinking ?? {};
    const wanted = chosen ?? open?.thinkingBefore ?? current;
    if (open?.thinking === undefined || way === undefined || !values.includes(wanted)) {
      if (chosen === undefined) return undefined;
      return `This agent does not have the thinking level "${chosen}". Its levels: ${values.join(', ') || 'none'}. Choose another one for the session.`;
    }
    if (wanted !== current) await setChoice(agent, conversation, 'thought_level', way, wanted);
    const { thinkingBefore = current, ...rest } = open;
    const before = chosen === undefined ? {} : { thinkingBefore };
    conversations.set(conversation, { ...rest, thinking: { ...open.thinking, current: wanted }, ...before });
    return undefined;
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
    const { conversation, text, parts, trace } = prompt.request;
    mentionFolder(prompt.request);
    const { request } = prompt;
    const refusal = (await chooseMode(request)) ?? (await chooseModel(request)) ?? (await chooseThinking(request));
    const { modes, models, thinking, commands = [] } = conversations.get(conversation) ?? {};
    const shown = { modes: modes?.shown ?? [], models: models?.shown ?? [], thinking: thinking?.shown ?? [] };
    request.offers?.({ ...shown, commands });
    if (refusal !== undefined) return { kind: 'failed', error: refusal };
    const answered = await agent.request(methods.agent.session.prompt, {
      sessionId: conversation,
      prompt: [{ type: 'text', text }, ...parts.map(toBlock)],
      ...(trace?.context !== undefined && { _meta: { traceparent: traceparentOf(trace.context) } }),
    });
    const response = anObject('session/prompt', answered);
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
    loginMethods: readLoginMethods(initialized.authMethods),
    async logIn(methodId) {
      await agent.request(methods.agent.authenticate, { methodId });
    },
    async findMissingLogin(folder) {
      const ways = initialized.authMethods ?? [];
      try {
        const { sessionId } = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
        if (deletes) await agent.request(methods.agent.session.delete, { sessionId }).catch(() => undefined);
        return undefined;
      } catch (error) {
        if (asObject(error).code !== AUTHENTICATION_REQUIRED) return undefined;
        const offered = ways.map(({ name, description }) => (description ? `${name} (${description})` : name));
        // Some agents offer no way to log in through the protocol, and say in the error what to do.
        const names = offered.length > 0 ? offered : [describeFailure(error)];
        return `log in with the agent's own command, as the user that runs Trestle: ${names.join('; ').slice(0, MAX_ADVICE)}`;
      }
    },
    deletes,
    accepts: { images: promptCapabilities?.image === true, texts: promptCapabilities?.embeddedContext === true },
    continues: keepsConversations && (canResume || loadSession),
    servers: { http: mcpCapabilities?.http === true, sse: mcpCapabilities?.sse === true },
    async open(folder, _model, servers) {
      const mcpServers = servers.map(toServer);
      const answer = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers });
      const sessionId = textOf(anObject('session/new', answer).sessionId);
      if (sessionId === '') throw new Error('it opened a conversation without a name');
      take(sessionId, folder, answer, 0);
      return sessionId;
    },
    async resume(conversation, folder, servers) {
      const request = { sessionId: conversation, cwd: folder, mcpServers: servers.map(toServer) };
      // Resuming does not repeat the whole conversation first, as loading does.
      const method = canResume ? methods.agent.session.resume : methods.agent.session.load;
      take(conversation, folder, await agent.request(method, request));
    },
    ...(isOffered(asObject(sessionCapabilities).fork) && {
      async fork(conversation: string, folder: string, servers: readonly ReachableMcpServer[]) {
        const params = { sessionId: conversation, cwd: folder, mcpServers: servers.map(toServer) };
        const answer = asObject(await agent.request('session/fork', params));
        const copy = textOf(answer.sessionId);
        if (copy === '') throw new Error('it copied a conversation without a name');
        take(copy, folder, answer);
        return copy;
      },
    }),
    async prompt(request) {
      const stopped = new AbortController();
      const prompt: RunningPrompt = { request, updates: createUpdateReader(), worked: false, asked: false, stopped };
      prompts.set(request.conversation, prompt);
      try {
        return await run(prompt);
      } catch (error) {
        const detail = error instanceof Error ? error.message : String(error);
        if (prompt.worked || !saysUnknownConversation(asObject(error).code, detail)) throw error;
        return { kind: 'lost', detail };
      } finally {
        // Each abort makes an error with its stack, which takes some 60 µs.
        if (prompt.asked) stopped.abort();
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
    closed: Promise.race([channel.closed, connection.closed.then(() => undefined)]),
  };
}
