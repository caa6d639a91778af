import type { ChatTool } from '../../contract/chat.ts';
import type { ResponsesTool } from '../../contract/responses.ts';
import { createSteps, type Steps } from '../../dialects/dialect.ts';
import { isPresent, unknownMembers } from '../decoded-request.ts';

/** A tool as its caller knows it. A custom tool takes free text instead of JSON. */
interface ToolOrigin {
  readonly kind: 'function' | 'custom';
  readonly name: string;
  readonly namespace: string | undefined;
}

export interface ToolTranslation {
  readonly tools: readonly ChatTool[];
  readonly dropped: readonly string[];
  /** The model's name of a tool. */
  chatName(namespace: string | undefined, name: string): string;
  /** Of a name that the model used, even one that it made up. */
  originOf(chatName: string): ToolOrigin;
}

type FunctionDefinition = NonNullable<ChatTool['function']>;

const TOOL_MEMBERS = ['type', 'name', 'description', 'parameters', 'strict', 'format'];
/** What chat completions take as the name of a function. */
const MAX_NAME_LENGTH = 64;
/** `_` and as many digits as the number of tools can have. */
const MAX_NUMBER_LENGTH = 7;

/**
 * Functions, custom tools and those of namespaces as functions of a chat completion. Tools that run on OpenAI's own
 * servers (web search and others) exist nowhere else: they are dropped and named.
 */
export function translateTools(given: readonly ResponsesTool[], steps: Steps = createSteps()): ToolTranslation {
  const tools: ChatTool[] = [];
  const dropped: string[] = [];
  const origins = new Map<string, ToolOrigin>();
  const names = new Map<string, string>();
  /** The next number for names that begin alike, so that many of the same name take no longer than others. */
  const numbers = new Map<string, number>();

  /** A name that no other tool has: the wanted one, or one with a number. */
  function freeName(wanted: string): string {
    const stem = wanted.slice(0, MAX_NAME_LENGTH - MAX_NUMBER_LENGTH);
    let name = wanted;
    let number = numbers.get(stem) ?? 2;
    while (origins.has(name)) {
      steps.take();
      name = `${stem}_${number}`;
      number += 1;
    }
    if (name !== wanted) numbers.set(stem, number);
    return name;
  }

  function add(tool: ResponsesTool, namespace: string | undefined): void {
    steps.take();
    const { type, name } = tool;
    if ((type !== 'function' && type !== 'custom') || name === undefined) {
      dropped.push(`tools.${type}`);
      return;
    }
    dropped.push(...unknownMembers('tools', tool, TOOL_MEMBERS));
    const chatName = freeName(joinedName(namespace, name));
    origins.set(chatName, { kind: type, name, namespace });
    names.set(keyOf(namespace, name), chatName);
    tools.push({ type: 'function', function: type === 'custom' ? asFunction(tool, chatName) : copied(tool, chatName) });
  }

  for (const tool of given) {
    if (tool.type !== 'namespace') add(tool, undefined);
    else for (const inner of tool.tools ?? []) add(inner, tool.name);
  }
  return {
    tools,
    dropped,
    chatName: (namespace, name) => names.get(keyOf(namespace, name)) ?? joinedName(namespace, name),
    originOf: (chatName) => origins.get(chatName) ?? { kind: 'function', name: chatName, namespace: undefined },
  };
}

function copied({ description, parameters, strict }: ResponsesTool, name: string): FunctionDefinition {
  return {
    name,
    ...(typeof description === 'string' && { description }),
    ...(isPresent(parameters) && { parameters }),
    ...(isPresent(strict) && { strict }),
  };
}

/** The grammar cannot be enforced, so it becomes part of the description. */
function asFunction({ description, format }: ResponsesTool, name: string): FunctionDefinition {
  const grammar = format?.definition === undefined ? '' : `The input must follow this grammar:\n${format.definition}`;
  const text = [description ?? '', grammar].filter((part) => part !== '').join('\n\n');
  return {
    name,
    ...(text !== '' && { description: text }),
    parameters: {
      type: 'object',
      properties: { input: { type: 'string', description: 'The input of the tool, as it is.' } },
      required: ['input'],
      additionalProperties: false,
    },
  };
}

function joinedName(namespace: string | undefined, name: string): string {
  return (namespace === undefined ? name : `${namespace}__${name}`).slice(0, MAX_NAME_LENGTH);
}

function keyOf(namespace: string | undefined, name: string): string {
  return JSON.stringify([namespace ?? null, name]);
}

/** Reads the text of a custom tool out of the arguments that the model streams for it: `{"input":"..."}`. */
export interface CustomToolInput {
  /** What the next piece of the arguments adds to the text. */
  read(piece: string): string;
  /** The whole text. Arguments that are not of that form are taken as the text themselves. */
  whole(): string;
}

const START = /^\s*\{\s*"input"\s*:\s*"/;
/** How many characters are searched for the beginning: no model writes longer white space there. */
const MAX_START = 1000;
const ESCAPE_LENGTH = 2;
const UNICODE_ESCAPE_LENGTH = 6;

export function createCustomToolInput(): CustomToolInput {
  const pieces: string[] = [];
  /** What could not be decoded yet: the beginning while it is not complete, then half an escape at most. */
  let rest = '';
  let state: 'beginning' | 'text' | 'over' = 'beginning';
  const text: string[] = [];

  return {
    read(piece) {
      pieces.push(piece);
      if (state === 'over') return '';
      rest += piece;
      if (state === 'beginning') {
        const found = START.exec(rest.slice(0, MAX_START));
        if (found === null) {
          if (rest.length > MAX_START) state = 'over';
          return '';
        }
        rest = rest.slice(found[0].length);
        state = 'text';
      }
      const [end, closed] = decodableEnd(rest);
      const added = decode(rest.slice(0, end));
      rest = rest.slice(end);
      if (closed) state = 'over';
      text.push(added);
      return added;
    },
    whole() {
      const source = pieces.join('');
      return inputOf(source) ?? (text.length === 0 ? source : text.join(''));
    },
  };
}

/** The end of what can be decoded yet: the closing quote, or the start of an escape that is still incomplete. */
function decodableEnd(source: string): [end: number, closed: boolean] {
  let at = 0;
  while (at < source.length) {
    const character = source[at];
    if (character === '"') return [at, true];
    if (character !== '\\') {
      at += 1;
      continue;
    }
    const length = escapeLength(source, at);
    if (at + length > source.length) return [at, false];
    at += length;
  }
  return [at, false];
}

/** Both halves of a character beyond the first plane are one unit: half of one is not text. */
function escapeLength(source: string, at: number): number {
  if (source[at + 1] !== 'u') return ESCAPE_LENGTH;
  const isFirstHalf = /^d[89ab]/i.test(source.slice(at + 2, at + 4));
  return isFirstHalf ? 2 * UNICODE_ESCAPE_LENGTH : UNICODE_ESCAPE_LENGTH;
}

/** Models sometimes leave line breaks unescaped. Anything that is not an escape stays unchanged. */
function decode(raw: string): string {
  const escaped = raw.replaceAll(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
  return parsed(`"${escaped}"`) ?? raw;
}

function inputOf(source: string): string | undefined {
  try {
    const value: unknown = JSON.parse(source);
    const input = typeof value === 'object' && value !== null && 'input' in value ? value.input : undefined;
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}

function parsed(literal: string): string | undefined {
  try {
    return String(JSON.parse(literal));
  } catch {
    return undefined;
  }
}
