import { Type } from 'typebox';
import { type Clock, deadline } from '../../../platform/clock/clock.ts';
import { isOurs } from '../../sessions/mcp-servers.ts';
import type { FairGate } from '../../sessions/turn-limits.ts';
import type { AgentEvent, AgentProvider, AgentTurn, SupervisedTurn, TurnEnd, TurnUsage } from '../agent-provider.ts';
import { superviseTurn } from '../supervise-turn.ts';
import { refuse } from './tools/confinement.ts';
import { defineTool, type Tool, type ToolOutput } from './tools/tool.ts';

/** The agents that a turn may ask. */
export interface AgentsToAsk {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  /** The places at an agent, which are shared with its other turns. */
  placesOf(providerId: string): FairGate;
}

/** The requests to models that a turn may make, together with those that it asks. `take` is false when there are none left. */
type Requests = NonNullable<AgentTurn['requests']>;

export function createRequests(max: number): Requests {
  let used = 0;
  return {
    left: () => Math.max(0, max - used),
    take() {
      used += 1;
      return used <= max;
    },
  };
}

/** What is left for those that a turn asks: one request stays with the turn, for its own last answer. */
function sharedWith(own: Requests): Requests {
  const left = () => Math.max(0, own.left() - 1);
  return { left, take: () => left() > 0 && own.take() };
}

/** Has an agent of the given id, or the built-in one, work on a prompt. Throws TOOL_CALL_REFUSED when that cannot be. */
type AskAgent = (agent: string | undefined, prompt: string, signal: AbortSignal) => Promise<ToolOutput>;

export interface AskingOptions {
  readonly turn: SupervisedTurn;
  /** The agent of the turn, at which it holds a place. */
  readonly agent: string;
  /** The model of the turn, with which the built-in agent works for itself. */
  readonly model: string;
  readonly agents: AgentsToAsk;
  readonly requests: Requests;
  readonly clock: Clock;
  /** Keeps work that nobody waits for until the bridge stops. */
  keep(work: Promise<unknown>): void;
  /** Called with what an agent used that was asked. */
  used(usage: TurnUsage | undefined): void;
}

/** In one turn. */
export const MAX_ASKED = 8;
export const MAX_PROMPT = 64 * 1024;
const ASK_MS = 15 * 60_000;
const OWN = 'builtin';

/**
 * Lets a turn have another agent, or the built-in agent itself, work on a part of its task: in a conversation of its own, in the same
 * folder, for the same owner and with the same permissions. An agent that is asked cannot ask in turn.
 */
export function createAskAgent(options: AskingOptions): AskAgent {
  const { turn, agents, requests } = options;
  const enter = createEntry(options);
  let asked = 0;
  return async (agent = OWN, prompt, signal) => {
    const provider = agents.providers.get(agent);
    const ids = [...agents.providers.keys()];
    if (provider === undefined) return refuse(`There is no agent "${agent}". There are: ${ids.join(', ')}.`);
    if (asked >= MAX_ASKED) return refuse(`This turn has asked ${MAX_ASKED} times already; do the rest yourself.`);
    if (requests.left() <= 1) return refuse('This turn has used up its requests to the model.');
    asked += 1;
    return ask(provider, { turnId: `${turn.turnId}.${asked}`, prompt }, signal, options, enter);
  };
}

/** Waits for a place at an agent. False: `signal` has aborted. Throws TOOL_CALL_REFUSED if none can become free. */
type EnterAgent = (gate: FairGate, agent: string, signal: AbortSignal) => Promise<boolean>;

/**
 * A turn that waits keeps its own place, so turns could wait for each other's places. Of such a circle, one turn is the last that
 * begins to wait, and all places that it could get are held by turns that wait: it is refused. No turn asks for a place at the built-in agent.
 */
function createEntry({ turn, agent: own, agents }: AskingOptions): EnterAgent {
  const place = turn.member ?? turn.owner;
  let waiting = 0;
  let release = (): void => undefined;
  return async (gate, agent, signal) => {
    if (gate.tryEnter(place)) return true;
    waiting += 1;
    if (waiting === 1 && own !== OWN) release = agents.placesOf(own).holdWaiting(place);
    try {
      if (gate.canOpen(place)) return await gate.enter(place, signal);
      return refuse(`All places at "${agent}" are held by turns that wait for other agents. Do this yourself.`);
    } finally {
      waiting -= 1;
      if (waiting === 0) {
        release();
        release = () => undefined;
      }
    }
  };
}

/** The tool of the built-in agent. */
export function createAskAgentTool(options: AskingOptions): Tool {
  const ids = [...options.agents.providers.keys()];
  const askAgent = createAskAgent(options);
  return defineTool({
    name: 'ask_agent',
    description: `Has another agent work on a part of the task in the same folder, and returns its answer. It sees nothing of this conversation: say in the prompt all that it needs to know. Several calls in one answer run at the same time, so give them work that does not touch the same files. At most ${MAX_ASKED} in a turn. Agents: ${ids.join(', ')}; ${OWN} is like you.`,
    parameters: Type.Object({
      agent: Type.Optional(Type.String({ maxLength: 64, description: `One of the agents. Default ${OWN}.` })),
      prompt: Type.String({ minLength: 1, maxLength: MAX_PROMPT, description: 'The task.' }),
    }),
    toolKind: 'other',
    needsPermission: true,
    isParallel: true,
    title: ({ agent = OWN, prompt }) => `Ask ${agent}: ${prompt.replaceAll(/\s+/g, ' ').slice(0, 200)}`,
    run: ({ agent, prompt }, { signal }) => askAgent(agent, prompt, signal),
  });
}

async function ask(
  provider: AgentProvider,
  task: Pick<AgentTurn, 'turnId' | 'prompt'>,
  outer: AbortSignal,
  { turn, model, agents, requests, clock, keep, used }: AskingOptions,
  enter: EnterAgent,
): Promise<ToolOutput> {
  const limit = deadline(clock, ASK_MS, [outer]);
  // No place is taken at the built-in agent, because the asking turn has one and could wait for itself.
  const gate = provider.id === OWN ? undefined : agents.placesOf(provider.id);
  const place = turn.member ?? turn.owner;
  let reference = '';
  try {
    if (gate !== undefined && !(await enter(gate, provider.id, limit.signal))) {
      return refuse(notInTime(limit.hasPassed()));
    }
    try {
      const asked: AgentTurn = {
        ...childTurn(turn, provider.id, task),
        model: provider.id === OWN ? model : '',
        requests: sharedWith(requests),
        opened(opened) {
          reference = opened;
        },
      };
      const end = await superviseTurn({ provider, turn: asked, signal: limit.signal, clock, keep });
      if (end.kind !== 'lost') used(end.usage);
      outer.throwIfAborted();
      return describe(end, limit.hasPassed());
    } finally {
      gate?.leave(place);
    }
  } finally {
    limit.release();
    const left = (what: string) => turn.leftBehind(provider.id, what);
    if (reference !== '') keep(provider.close(reference, { owner: turn.owner, left }));
  }
}

/** A turn with the rights of the one that asks. What it does is reported there; what it says is the result of the tool. */
function childTurn(turn: SupervisedTurn, agent: string, { turnId, prompt }: Pick<AgentTurn, 'turnId' | 'prompt'>) {
  const { owner, member, workingDirectory, fileFolder, skills, mcpServers, hop, ready, isReadOnly, ask, asks } = turn;
  const { deniedPaths } = turn;
  const idOf = (id: string) => (id === '' ? '' : `${turnId}:${id}`);
  const titleOf = (title: string) => `${agent}: ${title}`;
  return {
    turnId,
    owner,
    ...(member !== undefined && { member }),
    prompt,
    workingDirectory,
    ...(fileFolder !== undefined && { fileFolder }),
    skills,
    // Its own tools would let it ask in turn.
    ...(mcpServers !== undefined && { mcpServers: mcpServers.filter((server) => !isOurs(server)) }),
    hop,
    ...(turn.trace !== undefined && { trace: turn.trace }),
    ...(ready !== undefined && { ready }),
    ...(isReadOnly !== undefined && { isReadOnly }),
    ...(asks !== undefined && { asks }),
    ...(deniedPaths !== undefined && { deniedPaths }),
    ...(ask !== undefined && {
      ask: (question, signal, asked) =>
        ask({ ...question, toolCallId: idOf(question.toolCallId), title: titleOf(question.title) }, signal, asked),
    }),
    usedModel: () => undefined,
    leftBehind: turn.leftBehind,
    report(event: AgentEvent) {
      // A question was asked under the names that are used here.
      if (event.kind === 'question') return turn.report(event);
      if (event.kind !== 'tool_call' && event.kind !== 'permission') return undefined;
      const id = event.toolCallId === undefined ? {} : { toolCallId: idOf(event.toolCallId) };
      return turn.report({ ...event, ...id, title: titleOf(event.title) } as AgentEvent);
    },
  } satisfies Partial<AgentTurn>;
}

function describe(end: TurnEnd, isLate: boolean): ToolOutput {
  if (end.kind === 'completed') return { text: end.output === '' ? '[it said nothing]' : end.output };
  if (end.kind === 'failed') return { text: `[failed: ${end.error}]\n${end.output}`, failed: true };
  if (end.kind === 'lost') return { text: `[failed: ${end.detail}]`, failed: true };
  return { text: `[${notInTime(isLate)}]\n${end.output}`, failed: true };
}

function notInTime(isLate: boolean): string {
  return isLate ? `The agent was not done within ${ASK_MS} ms.` : 'The agent was stopped.';
}
