import type { ClientContext } from '@agentclientprotocol/sdk';
import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../platform/clock/clock.ts';
import { createAgentChannel } from '../agent-channel.ts';
import type { AgentConnection, PermissionPolicy, PromptEnd, PromptRequest } from '../agent-connection.ts';
import { asObject, textOf } from '../loose-json.ts';
import { saysUnknownConversation } from '../unknown-conversation.ts';
import { acpQuirks } from './acp-quirks.ts';
import { createAcpStream } from './acp-stream.ts';
import { choosePermission, readPermissionOptions } from './choose-permission.ts';
import { findModel, type ModelChoice, readModelChoice } from './model-choice.ts';
import { createUpdateReader, readUsage, type UpdateReader } from './read-update.ts';

export interface AcpAgentOptions {
  readonly process: RunningProcess;
  readonly permissions: PermissionPolicy;
  /** Ours, by which the agent may know us. */
  readonly version: string;
  readonly clock: Clock;
}

interface OpenConversation {
  readonly folder: string;
  readonly choice: ModelChoice | undefined;
}

interface RunningPrompt {
  readonly request: PromptRequest;
  readonly updates: UpdateReader;
  /** Whether the agent has done anything for it. */
  worked: boolean;
  interrupted: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

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
  function answerPermission({ sessionId, toolCall, options: offered }: Fields) {
    const prompt = prompts.get(textOf(sessionId));
    if (prompt === undefined || prompt.interrupted) return { outcome: { outcome: 'cancelled' } };
    const { decision, optionId } = choosePermission(options.permissions, readPermissionOptions(offered));
    const { toolCallId, title } = asObject(toolCall);
    prompt.worked = true;
    prompt.request.report({
      kind: 'permission',
      title: typeof title === 'string' && title !== '' ? title : 'a tool',
      decision,
      ...(typeof toolCallId === 'string' && { toolCallId }),
    });
    return { outcome: optionId === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId } };
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
  const canResume = isOffered(sessionCapabilities?.resume);
  const { keepsConversations } = acpQuirks(agentInfo?.name ?? '');

  async function chooseModel({ conversation, model, report }: PromptRequest): Promise<void> {
    const open = conversations.get(conversation);
    const choice = open?.choice;
    if (model === '' || model === choice?.current) return;
    const found = choice === undefined ? undefined : findModel(choice, model);
    if (open === undefined || choice === undefined || found === undefined) {
      report({ kind: 'status', text: `This agent does not offer the model "${model}"; it uses its own.` });
      return;
    }
    await setModel(agent, conversation, choice, found);
    conversations.set(conversation, { ...open, choice: { ...choice, current: found } });
  }

  /** The protocol gives a conversation its folder once and for all. */
  function mentionFolder({ conversation, folder, report }: PromptRequest): void {
    const own = conversations.get(conversation)?.folder;
    if (own === undefined || own === folder) return;
    report({ kind: 'status', text: `The conversation stays in ${own}: this agent cannot move it.` });
  }

  async function run(prompt: RunningPrompt): Promise<PromptEnd> {
    const { conversation, text } = prompt.request;
    mentionFolder(prompt.request);
    await chooseModel(prompt.request);
    const response = await agent.request(methods.agent.session.prompt, {
      sessionId: conversation,
      prompt: [{ type: 'text', text }],
    });
    const usage = readUsage(response, prompt.updates.tokensInUse());
    const used = usage === undefined ? {} : { usage };
    if (response.stopReason === 'cancelled') return { kind: 'cancelled', ...used };
    return { kind: 'completed', stopReason: response.stopReason, ...used };
  }

  return {
    continues: keepsConversations && (canResume || loadSession),
    async open(folder) {
      const answer = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
      conversations.set(answer.sessionId, { folder, choice: readModelChoice(answer) });
      return answer.sessionId;
    },
    async resume(conversation, folder) {
      const request = { sessionId: conversation, cwd: folder, mcpServers: [] };
      // Resuming does not repeat the whole conversation first, as loading does.
      const method = canResume ? methods.agent.session.resume : methods.agent.session.load;
      conversations.set(conversation, { folder, choice: readModelChoice(await agent.request(method, request)) });
    },
    async prompt(request) {
      const prompt: RunningPrompt = { request, updates: createUpdateReader(), worked: false, interrupted: false };
      prompts.set(request.conversation, prompt);
      try {
        return await run(prompt);
      } catch (error) {
        const detail = error instanceof Error ? error.message : String(error);
        if (prompt.worked || !saysUnknownConversation(asObject(error).code, detail)) throw error;
        return { kind: 'lost', detail };
      } finally {
        prompts.delete(request.conversation);
      }
    },
    interrupt(conversation) {
      const prompt = prompts.get(conversation);
      if (prompt !== undefined) prompt.interrupted = true;
      agent.notify(methods.agent.session.cancel, { sessionId: conversation }).catch(() => undefined);
    },
    async close(conversation) {
      conversations.delete(conversation);
      if (!isOffered(sessionCapabilities?.close)) return;
      await agent.request(methods.agent.session.close, { sessionId: conversation });
    },
    closed: connection.closed,
  };
}

function setModel(agent: ClientContext, sessionId: string, { way }: ModelChoice, value: string): Promise<unknown> {
  if (way.kind === 'option') {
    return agent.request('session/set_config_option', { sessionId, configId: way.configId, value });
  }
  return agent.request('session/set_model', { sessionId, modelId: value });
}

/** A capability is there when its member is, whatever stands in it. */
function isOffered(capability: unknown): boolean {
  return capability !== undefined && capability !== null;
}

function asFields(params: unknown): Fields {
  return asObject(params);
}
