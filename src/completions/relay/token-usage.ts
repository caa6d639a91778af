import type { ChatRequest, Usage } from '../contract/chat.ts';
import { asFunctionCall } from '../dialects/conversation.ts';
import { completionTokens } from '../dialects/openai/openai-answer.ts';

const USAGE = Buffer.from('"usage"');
const COLON = 0x3a;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACES: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Returns the usage that an upstream sent, or undefined if the value is not usage. */
export function asUsage(value: unknown): Usage | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { prompt_tokens: prompt, completion_tokens: completion = 0, total_tokens: total } = value as Partial<Usage>;
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  const sum = isCount(total) ? total : prompt + completion;
  return {
    ...(value as Usage),
    completion_tokens: completionTokens({ prompt, completion, total: sum }),
    total_tokens: Math.max(sum, prompt + completion),
  };
}

/** Usage takes some hundred bytes. Without these limits, nested members would be read repeatedly. */
const MAX_USAGE_BYTES = 64 * 1024;
const MAX_USAGE_MEMBERS = 16;

export interface FoundUsage {
  readonly usage: Usage;
  /** The position after the value. */
  readonly end: number;
}

/**
 * Finds the usage in the bytes of a complete response without parsing the rest. Quotes inside a string are escaped, so `"usage":{` is
 * always a member. The last member with numbers counts; undefined if none of the last members has any.
 */
export function findUsage(
  answer: Buffer,
  read: (value: unknown) => Usage | undefined = asUsage,
): FoundUsage | undefined {
  let members = 0;
  for (let at = answer.lastIndexOf(USAGE); at !== -1; at = at === 0 ? -1 : answer.lastIndexOf(USAGE, at - 1)) {
    const start = startOfValue(answer, at + USAGE.length);
    if (answer[start] !== OPEN) continue;
    members += 1;
    if (members > MAX_USAGE_MEMBERS) return undefined;
    const end = endOfObject(answer, start, Math.min(answer.length, start + MAX_USAGE_BYTES));
    if (end === -1) return undefined;
    const usage = read(parse(answer.toString('utf8', start, end)));
    if (usage !== undefined) return { usage, end };
  }
  return undefined;
}

/** What is read byte by byte after the usage. A longer rest is parsed, which is faster there. */
const MAX_REST_BYTES = 1024;

/**
 * Returns whether a response is whole JSON: a server that counts what it sends may have got a part alone. Nearly all responses have
 * their usage last, in the outermost object, so that reading the bytes after it is enough; all others are parsed.
 */
export function isWholeJson(answer: Buffer, usage: FoundUsage | undefined): boolean {
  return (usage !== undefined && closesAfter(answer, usage.end)) || parse(answer.toString('utf8')) !== undefined;
}

/** Returns whether the outermost object is closed by the last byte, if the bytes up to `start` leave it alone open. */
function closesAfter(answer: Buffer, start: number): boolean {
  let last = answer.length - 1;
  while (last > start && SPACES.has(answer[last] ?? 0)) last -= 1;
  if (last - start > MAX_REST_BYTES) return false;
  let depth = 1;
  for (let at = start; at <= last; at += 1) {
    const byte = answer[at];
    if (byte === QUOTE) {
      at += 1;
      while (at < last && answer[at] !== QUOTE) at += answer[at] === BACKSLASH ? 2 : 1;
    } else if (byte === OPEN || byte === OPEN_LIST) {
      depth += 1;
    } else if (byte === CLOSE || byte === CLOSE_LIST) {
      depth -= 1;
      if (depth === 0) return at === last && byte === CLOSE;
    }
  }
  return false;
}

/** Returns where the value of a key begins; `after` is the position after the key. -1 if no value follows. */
export function startOfValue(bytes: Buffer, after: number): number {
  let at = after;
  while (SPACES.has(bytes[at] ?? 0)) at += 1;
  if (bytes[at] !== COLON) return -1;
  at += 1;
  while (SPACES.has(bytes[at] ?? 0)) at += 1;
  return at;
}

function endOfObject(bytes: Buffer, start: number, limit: number): number {
  let depth = 0;
  for (let at = start; at < limit; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      at += 1;
      while (at < limit && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1;
    } else if (byte === OPEN) {
      depth += 1;
    } else if (byte === CLOSE) {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return -1;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/**
 * For usage that an upstream does not send, and for reservations before a call: four characters are a token, a message adds
 * four, and an image, a recording or a file a thousand. Documented in docs/completions.md.
 */
const CHARACTERS_PER_TOKEN = 4;
const TOKENS_PER_MESSAGE = 4;
const TOKENS_PER_ATTACHMENT = 1000;
/** How many tokens are reserved for a response when the caller sets no limit. */
const USUAL_ANSWER_TOKENS = 1024;

export function estimatePromptTokens({ messages, tools, functions }: ChatRequest): number {
  let characters = 0;
  let tokens = messages.length * TOKENS_PER_MESSAGE;
  for (const { content, tool_calls: calls } of messages) {
    if (typeof content === 'string') characters += content.length;
    else if (Array.isArray(content)) {
      for (const part of content) {
        if (part.text === undefined) tokens += TOKENS_PER_ATTACHMENT;
        else characters += part.text.length;
      }
    }
    for (const call of calls ?? []) {
      const called = asFunctionCall(call).function;
      characters += called.name.length + called.arguments.length;
    }
  }
  const definitions = tools ?? functions;
  if (definitions !== undefined && definitions !== null) characters += JSON.stringify(definitions).length;
  return tokens + tokensOfCharacters(characters);
}

/** Names of members that contain a file in base64 or its address, and of members that the model does not read. */
const ATTACHED: ReadonlySet<string> = new Set(['data', 'file_data', 'image_url', 'file_url', 'url', 'fileUri']);
const UNREAD: ReadonlySet<string> = new Set(['signature', 'encrypted_content', 'cache_control', 'thoughtSignature']);

/** Estimates the prompt of any other API: all texts in it, at any depth. A number counts as one token, because prompts may be lists of token numbers. */
export function estimateTokensIn(...parts: readonly unknown[]): number {
  let characters = 0;
  let attachments = 0;
  let numbers = 0;
  const waiting: unknown[] = [...parts];
  while (waiting.length > 0) {
    const value = waiting.pop();
    if (typeof value === 'string') characters += value.length;
    else if (typeof value === 'number') numbers += 1;
    else if (Array.isArray(value)) for (const item of value) waiting.push(item);
    else if (typeof value === 'object' && value !== null) {
      for (const [name, member] of Object.entries(value)) {
        if (UNREAD.has(name)) continue;
        if (typeof member === 'string' && ATTACHED.has(name)) attachments += 1;
        else waiting.push(member);
        characters += name.length;
      }
    }
  }
  return tokensOfCharacters(characters) + numbers + attachments * TOKENS_PER_ATTACHMENT;
}

/** Returns the most tokens that the response may take, by the caller's own limit. */
export function expectedAnswerTokens({
  max_completion_tokens: most,
  max_tokens: older,
  n,
}: Pick<ChatRequest, 'max_completion_tokens' | 'max_tokens' | 'n'>): number {
  return (most ?? older ?? USUAL_ANSWER_TOKENS) * (n ?? 1);
}

/**
 * Returns how many texts a text completion writes: `n` or `best_of` for each prompt. Also takes values of requests that were not
 * checked.
 */
export function textCount({ prompt, n, best_of: best }: Readonly<Record<string, unknown>>): number {
  const prompts = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? Math.max(1, prompt.length) : 1;
  const written = [n, best].filter((count): count is number => typeof count === 'number');
  return prompts * Math.max(1, ...written);
}

export function tokensOfCharacters(characters: number): number {
  return Math.ceil(characters / CHARACTERS_PER_TOKEN);
}

export function estimatedUsage(promptTokens: number, completionTokens: number): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    estimated: true,
  };
}
