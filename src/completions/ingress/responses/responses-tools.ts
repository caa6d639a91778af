import type { ChatTool } from '../../contract/chat.ts';
import type { ResponsesTool } from '../../contract/responses.ts';
import { createSteps, type Steps } from '../../dialects/steps.ts';
import { isPresent } from '../decoded-request.ts';

/** A tool as its caller knows it. A custom tool takes free text instead of JSON. */
export interface ToolOrigin {
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

/** The grammar cannot be enforced, so the model is told of it. */
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
