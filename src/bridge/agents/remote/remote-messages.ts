import type { AgentEnd, AgentEvent, FileElsewhere, TurnUsage } from '../agent-provider.ts';
import { asObject, textOf } from '../agent-text.ts';
import { readPlan, withinChangeBounds } from '../file-changes.ts';
import type { RemoteReply } from './remote-connection.ts';

type ToolCallEvent = Extract<AgentEvent, { kind: 'tool_call' }>;

const TOOL_STATUS: readonly string[] = [
  'pending',
  'in_progress',
  'completed',
  'failed',
] satisfies ToolCallEvent['status'][];
const DECISIONS = ['allowed', 'denied', 'answered', 'declined'] as const;
const MAX_LOCATIONS = 100;
const USAGE_MEMBERS = ['inputTokens', 'outputTokens', 'cachedTokens', 'contextUsed', 'contextSize', 'costUsd'] as const;

/**
 * What the parameters of a `session.update` mean to us. Undefined for the progress of the other
 * bridge (our own bridge reports its progress itself) and for unknown kinds.
 */
export function readUpdate(params: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const event = asObject(params.structuredEvent);
  const text = textOf(event.text);
  switch (event.kind) {
    case 'text':
      return text === '' ? undefined : { kind: 'text', text };
    case 'thinking':
      return text === '' ? undefined : { kind: 'thinking', text };
    case 'status':
      return readStatus(event, text);
    case 'tool_call':
      return readToolCall(event);
    default:
      return params.type === 'delta' && textOf(params.delta) !== ''
        ? { kind: 'text', text: textOf(params.delta) }
        : undefined;
  }
}

/** What is not one of the four kinds of the first surface is a member of a status: it is an event of its own again. */
function readMember(event: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const { plan, usage, modeId, commands, steer } = event;
  if (plan !== undefined) return { kind: 'plan', entries: readPlan(plan) };
  if (usage !== undefined) return { kind: 'usage', ...readNumbers(usage, USAGE_MEMBERS) };
  if (typeof modeId === 'string') return { kind: 'mode', modeId };
  if (typeof steer === 'string') return { kind: 'steer', text: steer };
  if (!Array.isArray(commands)) return undefined;
  const listed = commands.slice(0, MAX_LOCATIONS).map(asObject);
  return {
    kind: 'commands',
    commands: listed.map(({ name, description, hint }) => ({
      name: textOf(name),
      description: textOf(description),
      ...(typeof hint === 'string' && { hint }),
    })),
  };
}

/** A permission is a status too, and says so; it is one of ours again, so that our own records have it as well. */
function readStatus(event: Readonly<Record<string, unknown>>, text: string): AgentEvent | undefined {
  const member = readMember(event);
  if (member !== undefined) return member;
  const decision = DECISIONS.find((one) => event.status === `permission_${one}`);
  if (decision === undefined) return text === '' ? undefined : { kind: 'status', text };
  const toolCallId = textOf(event.toolCallId);
  const title = text.replace(/^(?:Allowed|Denied|Answered|Declined): /, '');
  const reason = textOf(event.reason);
  return {
    kind: 'permission',
    title,
    decision,
    ...(toolCallId !== '' && { toolCallId }),
    ...(reason !== '' && { reason }),
  };
}

function readToolCall(event: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const toolCallId = textOf(event.toolCallId);
  const { status } = event;
  if (toolCallId === '' || !isToolStatus(status)) return undefined;
  const locations = readLocations(event.locations);
  return {
    kind: 'tool_call',
    toolCallId,
    title: textOf(event.title),
    status,
    toolKind: textOf(event.toolKind) || 'other',
    ...(event.input !== undefined && { input: event.input }),
    ...(event.output !== undefined && { output: event.output }),
    ...(locations.length > 0 && { locations }),
    ...readChanges(event.changes),
    ...readNumbers(event, ['exitCode', 'durationMs']),
  };
}

function readChanges(value: unknown): Pick<ToolCallEvent, 'changes'> {
  if (!Array.isArray(value)) return {};
  const changes = value.map((given: unknown) => {
    const { path, oldText, newText, unified, added, removed, truncated } = asObject(given);
    return {
      path: textOf(path),
      ...(typeof oldText === 'string' && { oldText }),
      ...(typeof newText === 'string' && { newText }),
      ...(typeof unified === 'string' && { unified }),
      added: Number.isSafeInteger(added) ? Number(added) : 0,
      removed: Number.isSafeInteger(removed) ? Number(removed) : 0,
      truncated: truncated === true,
    };
  });
  return { changes: withinChangeBounds(changes) };
}

/** The members that are numbers. */
function readNumbers<Name extends string>(value: unknown, names: readonly Name[]): { [Key in Name]?: number } {
  const given = asObject(value);
  const numbers: { [Key in Name]?: number } = {};
  for (const name of names) {
    const number = given[name];
    if (typeof number === 'number' && Number.isFinite(number)) numbers[name] = number;
  }
  return numbers;
}

function isToolStatus(value: unknown): value is ToolCallEvent['status'] {
  return typeof value === 'string' && TOOL_STATUS.includes(value);
}

function readLocations(value: unknown): NonNullable<ToolCallEvent['locations']> {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_LOCATIONS).flatMap((location: unknown) => {
    const { path, line } = asObject(location);
    if (typeof path !== 'string') return [];
    return [typeof line === 'number' ? { path, line } : { path }];
  });
}

const CONTINUATION_LOST = 'SESSION_CONTINUATION_UNAVAILABLE';

/** How the turn on the other bridge ended. `place` is where its files are. */
export function readTurnEnd(reply: RemoteReply, place: string, isOnRunner = false): AgentEnd {
  switch (reply.kind) {
    case 'aborted':
      return { kind: 'cancelled' };
    case 'unreachable':
      return failed(
        `The agent cannot be reached: ${reply.reason}${reply.mayHaveStarted ? '; whether it has done its work is not known' : ''}.`,
      );
    case 'absent': {
      const error = 'The runner of the agent was away for more than a minute.';
      return { kind: 'failed', code: reply.mayHaveStarted ? 'TURN_INTERRUPTED' : 'PROVIDER_UNAVAILABLE', error };
    }
    case 'error':
      if (reply.word === CONTINUATION_LOST) return { kind: 'lost', detail: reply.message };
      // The token of a runner with `--once` is that of its process.
      if (isOnRunner && reply.word === 'UNAUTHORIZED') {
        const error = 'The runner of the session has ended, and a fresh one is in its place.';
        return { kind: 'failed', code: 'AGENT_EXITED', error };
      }
      return failed(reply.message === '' ? 'The agent answered with an error.' : reply.message);
    case 'result':
      return { ...readResult(reply.result), ...readFiles(reply.result.artifacts, place) };
  }
}

function readResult(result: Readonly<Record<string, unknown>>): AgentEnd {
  const output = textOf(result.output);
  const usage = readUsage(result.usage);
  const code = textOf(result.code);
  switch (result.status) {
    case 'completed':
      return { kind: 'completed', output, stopReason: textOf(result.stopReason) || 'end_turn', ...usage };
    case 'cancelled':
      return { kind: 'cancelled', output, ...usage };
    default: {
      // Our own bridge calls it by that name again, because there is no output.
      if (code === 'EMPTY_OUTPUT') return { kind: 'completed', output: '', stopReason: 'end_turn', ...usage };
      const error =
        textOf(result.error) || textOf(result.unavailableMessage) || 'The agent did not say what went wrong.';
      return { kind: 'failed', code: failureCode(code), error, ...(output !== '' && { output }), ...usage };
    }
  }
}

/** A turn that a restart over there has killed is, seen from here, an agent that went away. */
function failureCode(code: string): 'AGENT_FAILED' | 'AGENT_EXITED' | 'AGENT_TIMEOUT' {
  if (code === 'AGENT_TIMEOUT') return code;
  return code === 'AGENT_EXITED' || code === 'TURN_INTERRUPTED' ? 'AGENT_EXITED' : 'AGENT_FAILED';
}

function failed(error: string): AgentEnd {
  return { kind: 'failed', code: 'AGENT_FAILED', error };
}

function readUsage(value: unknown): { readonly usage?: TurnUsage } {
  const usage = readNumbers(value, ['inputTokens', 'outputTokens', 'totalTokens', 'costUsd']);
  return Object.keys(usage).length === 0 ? {} : { usage };
}

const MAX_FILES = 20;

/** The files of a turn stay where they are; their links are made to lead there. */
function readFiles(artifacts: unknown, place: string): { readonly files?: readonly FileElsewhere[] } {
  const files = (Array.isArray(artifacts) ? artifacts.slice(0, MAX_FILES) : []).flatMap((given: unknown) => {
    const { relativePath, label, contentType, sizeBytes, sha256, downloadUrl } = asObject(given);
    const path = textOf(relativePath);
    if (path === '' || !Number.isSafeInteger(sizeBytes) || typeof downloadUrl !== 'string') return [];
    const names = { relativePath: path, label: textOf(label) || path, contentType: textOf(contentType) };
    return [{ place, artifact: { ...names, sizeBytes: Number(sizeBytes), sha256: textOf(sha256), downloadUrl } }];
  });
  return files.length === 0 ? {} : { files };
}
