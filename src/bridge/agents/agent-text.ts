import { isAbsolute } from 'node:path';
import { AppError } from '../../platform/errors/app-error.ts';
import { RemoteError } from '../../platform/json-rpc/envelope.ts';
import { createKnownSecrets, hideCredentials, isSecretName } from '../../platform/log/hidden-secrets.ts';
import type { AgentEvent } from './agent-provider.ts';

/** Returns a JSON object from outside; an empty one for anything else. */
export function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}

/** Returns a list from outside with its entries as objects; an empty list for anything else. */
export function objectsIn(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.map((entry) => asObject(entry)) : [];
}

/** A number of tokens that an agent told; undefined if it cannot be one. */
export function tokenCount(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}

/** Returns a string from outside; empty for anything else. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Anything from outside as text to show. Objects are left out: `{"toString": null}` would make `String(...)` throw. */
export function shownText(value: unknown): string {
  return value === undefined || typeof value === 'object' ? '' : String(value);
}

/** What a block of content shows. */
export function contentText(content: unknown): string {
  const { type, text, uri, resource, data, mimeType } = asObject(content);
  if (type === 'text' && typeof text === 'string') return text;
  if (type === 'resource_link' && typeof uri === 'string') return uri;
  // Updates are text: a picture or a sound is named, so that nobody misses it without a sign.
  if ((type === 'image' || type === 'audio') && typeof data === 'string') {
    return `[${type} ${shownText(mimeType)}, ${Math.floor((data.length * 3) / 4)} bytes]`;
  }
  const { text: embedded } = asObject(resource);
  return typeof embedded === 'string' ? embedded : '';
}

/** What a tool shows: text, or the files that it changes. */
export function contentOf(value: unknown): unknown {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  const parts = value.map((entry: unknown) => {
    const { type, content, path } = asObject(entry);
    return type === 'diff' ? `changed ${shownText(path)}` : contentText(content);
  });
  return parts.filter((part) => part !== '').join('\n');
}

const MAX_VALUE_CHARACTERS = 65_536;

/** Inputs and outputs of tools can be whole files; an event carries the beginning of them. */
export function withinBounds(value: unknown): unknown {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (text === undefined || text.length <= MAX_VALUE_CHARACTERS) return value;
  return `${text.slice(0, MAX_VALUE_CHARACTERS)}… (${text.length} characters)`;
}

/** Of one event, in characters: an agent may call a tool by a whole file. */
const MAX_TITLE_LENGTH = 4096;
const MAX_NAME_LENGTH = 1024;
const MAX_STATUS_LENGTH = 16 * 1024;
const MAX_LOCATIONS = 1000;

/** An event of an agent without what nobody could show: each update is stored, and sent to each client. */
export function withinLimits(event: AgentEvent): AgentEvent {
  switch (event.kind) {
    case 'tool_call': {
      const { toolCallId, title, toolKind, locations } = event;
      const shown = { toolCallId: cutName(toolCallId), title: cutTitle(title), toolKind: cutName(toolKind) };
      if (locations === undefined) return { ...event, ...shown };
      const places = locations.slice(0, MAX_LOCATIONS);
      return { ...event, ...shown, locations: places.map((one) => ({ ...one, path: cutTitle(one.path) })) };
    }
    case 'permission': {
      const { title, toolCallId } = event;
      return { ...event, title: cutTitle(title), ...(toolCallId !== undefined && { toolCallId: cutName(toolCallId) }) };
    }
    case 'status':
      return { ...event, text: cutWithMark(event.text, MAX_STATUS_LENGTH) };
    case 'mode':
      return { ...event, modeId: cutName(event.modeId) };
    default:
      return event;
  }
}

const cutName = (text: string) => cutWithMark(text, MAX_NAME_LENGTH);
const cutTitle = (text: string) => cutWithMark(text, MAX_TITLE_LENGTH);

function cutWithMark(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${cutText(text, maxLength - 1)}…`;
}

/** The longest `output` of a result, in characters. The whole of a longer text is kept as an artifact. */
export const MAX_OUTPUT_LENGTH = 4_000_000;

/** Follows the final text of a turn without keeping it. */
export interface TextMeter {
  /** Returns which part of the final text the event is; undefined when it is not a part of it. */
  add(event: AgentEvent): 'first' | 'next' | undefined;
  length(): number;
}

/**
 * The final text of a turn is what the agent wrote after its last tool call. When a turn ends with a tool call, its final
 * text is what the agent wrote before that call.
 */
export function createTextMeter(): TextMeter {
  let length = 0;
  let hasCalledTool = false;
  return {
    add(event) {
      if (event.kind === 'tool_call') hasCalledTool = true;
      if (event.kind !== 'text') return undefined;
      if (hasCalledTool) length = 0;
      hasCalledTool = false;
      const part = length === 0 ? 'first' : 'next';
      length += event.text.length;
      return part;
    },
    length: () => length,
  };
}

/** Collects the final text of a turn, up to `MAX_OUTPUT_LENGTH`. */
export function createFinalText(): { add(event: AgentEvent): void; value(): string } {
  const meter = createTextMeter();
  let pieces: string[] = [];
  return {
    add(event) {
      const part = meter.add(event);
      if (part === undefined || event.kind !== 'text') return;
      if (part === 'first') pieces = [];
      const room = MAX_OUTPUT_LENGTH - (meter.length() - event.text.length);
      if (room > 0) pieces.push(cutText(event.text, room));
    },
    value() {
      const text = pieces.join('');
      // The pieces are not needed any more: a long text is in memory once.
      pieces = [text];
      return text;
    },
  };
}

/** Returns the beginning of a text, never half of a character that has two code units. */
export function cutText(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const last = text.charCodeAt(maxLength - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? maxLength - 1 : maxLength);
}

/** Calls at the same time; of a further one every step is passed on. */
const MAX_RUNNING_CALLS = 100;

/**
 * Agents repeat all that a running tool has printed with every line that it adds. Passed on like that, the events of one
 * long build would fill a disk: of such steps only those are worth passing on in which the output has doubled. The end of
 * a call always is, with all of the output.
 */
export function createProgressThinning(): (event: AgentEvent) => boolean {
  const passedOn = new Map<string, number>();
  return (event) => {
    if (event.kind !== 'tool_call') return true;
    if (event.status !== 'in_progress') {
      passedOn.delete(event.toolCallId);
      return true;
    }
    if (typeof event.output !== 'string' || event.output === '') return true;
    const { length } = event.output;
    const before = passedOn.get(event.toolCallId);
    if (before !== undefined && length < 2 * before) return false;
    if (before !== undefined || passedOn.size < MAX_RUNNING_CALLS) passedOn.set(event.toolCallId, length);
    return true;
  };
}

const MAX_FAILURE_CHARACTERS = 4000;

interface HiddenProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/** What went wrong between us and an agent, in words for the result of a turn. */
export function describeFailure(error: unknown): string {
  if (error instanceof RemoteError) return withDetails(error.remoteMessage, error.data);
  if (error instanceof AppError) return typeof error.details.reason === 'string' ? error.details.reason : error.code;
  if (!(error instanceof Error)) return String(error);
  return withDetails(error.message, 'data' in error ? error.data : undefined);
}

/** Some agents say what is wrong in the data only, under one of these names. */
function withDetails(message: string, data: unknown): string {
  const { details, message: inner } = asObject(data);
  const more = [details, inner].find((text): text is string => typeof text === 'string' && text !== '');
  return more === undefined || message.includes(more) ? message : `${message}: ${more}`;
}

/**
 * Removes from an agent's words what apps must not learn: credentials of any kind, the secrets that the agent was given, and
 * where its program is.
 */
export function createHiding(program: HiddenProgram, label: string): (text: string) => string {
  const { command, args, environment } = program;
  // The longest first: one may be the beginning of another.
  const paths = [command, ...args]
    .filter((word) => isAbsolute(word) && word.length > 1)
    .sort((a, b) => b.length - a.length);
  const secrets = Object.entries(environment).flatMap(([name, value]) => (holdsSecret(name) ? [value] : []));
  const known = createKnownSecrets(secrets);
  return (text) => {
    const named = paths.reduce((words, path) => words.replaceAll(path, label), text);
    const hidden = hideCredentials(known.hide(named));
    return hidden.length > MAX_FAILURE_CHARACTERS ? `…${hidden.slice(-MAX_FAILURE_CHARACTERS)}` : hidden;
  };
}

function holdsSecret(name: string): boolean {
  return isSecretName(name) || name.toUpperCase().endsWith('KEY');
}

const RESOURCE_NOT_FOUND = -32002;
const MISSING = ['not found', 'unknown', 'no such', 'does not exist', 'no rollout'];

/**
 * Whether an agent's refusal of a prompt means that it no longer knows the conversation. Only few agents have a code of
 * its own for that; the others say it in words.
 */
export function saysUnknownConversation(code: unknown, message: string): boolean {
  if (code === RESOURCE_NOT_FOUND) return true;
  const words = message.toLowerCase();
  const isAboutConversation = words.includes('session') || words.includes('thread') || words.includes('conversation');
  return isAboutConversation && MISSING.some((missing) => words.includes(missing));
}
