import type { ChatRequest, ChatTool, ContentPart } from '../../contract/chat.ts';
import type {
  GeminiContent,
  GeminiPart,
  GeminiTool,
  GenerateContentRequest,
  GenerationConfig,
} from '../../contract/gemini.ts';
import { typeOfName } from '../../dialects/conversation.ts';
import { createSteps, type Steps } from '../../dialects/dialect.ts';
import { packCallSignature, packTextSignature } from '../../dialects/google/google-request.ts';
import { jsonSchemaOf } from '../../dialects/google/google-schema.ts';
import type { DecodedRequest } from '../../operations/chat-pipeline.ts';
import {
  type ConversationBuilder,
  createConversation,
  droppedNames,
  effortOfBudget,
  invalidField,
  isPresent,
  isRecord,
  streamFields,
  type ThinkingWish,
  unknownFields,
  unknownMembers,
} from '../decoded-request.ts';
import { modelTurns, type PlacedPart, readProof } from './gemini-content.ts';

/** Translated below. Everything else is Google's own: dropped and named. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'contents', 'systemInstruction', 'tools', 'toolConfig', 'generationConfig', 'cachedContent'],
]);
const KNOWN_CONFIG: ReadonlySet<string> = new Set([
  ...['temperature', 'topP', 'topK', 'maxOutputTokens', 'stopSequences', 'seed', 'presencePenalty', 'frequencyPenalty'],
  ...['responseMimeType', 'responseSchema', 'responseJsonSchema', 'thinkingConfig', 'responseLogprobs', 'logprobs'],
]);
const PART_MEMBERS = [
  ...['text', 'thought', 'thoughtSignature', 'inlineData', 'fileData', 'functionCall', 'functionResponse'],
];
/** Fields that have no effect with these values. */
const NO_EFFECT: ReadonlyMap<string, (value: unknown) => boolean> = new Map([
  ['candidateCount', (value: unknown) => value === 1],
  ['responseModalities', (value: unknown) => Array.isArray(value) && value.every((each) => each === 'TEXT')],
]);
/** As many as chat completions have. */
const MAX_STOPS = 4;

/** One translation of a request. */
interface Translation {
  readonly conversation: ConversationBuilder;
  readonly dropped: Set<string>;
  readonly steps: Steps;
  readonly calls: CallBook;
}

/** A request of `generateContent` as a chat completion. The address names the model, and whether the answer is a stream. */
export function decodeGeminiRequest(
  request: GenerateContentRequest,
  { model, stream }: { readonly model: string; readonly stream: boolean },
): DecodedRequest {
  const dropped = new Set<string>(unknownFields(request, KNOWN));
  const conversation = createConversation();
  const translation = { conversation, dropped, steps: createSteps(), calls: createCallBook() };
  const { systemInstruction: system, generationConfig: config = {} } = request;
  if (system !== undefined) decodeSystem(system, translation);
  decodeContents(request.contents, translation);
  for (const name of unknownFields(config, KNOWN_CONFIG)) {
    const value = (config as Readonly<Record<string, unknown>>)[name];
    if (NO_EFFECT.get(name)?.(value) !== true) dropped.add(`generationConfig.${name}`);
  }
  const chat: ChatRequest = {
    model,
    messages: conversation.messages('/contents'),
    ...streamFields({ stream }),
    ...decodeTools(request, translation),
    ...decodeConfig(config),
    ...answerFormat(config, translation),
    ...reasoningEffort(config.thinkingConfig ?? {}),
  };
  return { chat, dropped: droppedNames(dropped) };
}

function decodeSystem({ parts = [] }: GeminiContent, { conversation, dropped, steps }: Translation): void {
  steps.take(parts.length);
  for (const { text } of parts) {
    if (text === undefined) dropped.add('systemInstruction.parts');
    else if (text !== '') conversation.instruct(text);
  }
}

function decodeContents(contents: readonly GeminiContent[], translation: Translation): void {
  for (const turn of modelTurns(contents, translation.steps)) {
    for (const { part } of turn.parts) {
      for (const name of unknownMembers('contents.parts', part, PART_MEMBERS)) translation.dropped.add(name);
    }
    if (turn.role === 'model') decodeModelTurn(turn.parts, translation);
    else decodeUserTurn(turn.parts, translation);
  }
}

/** Names parts that chat completions have no place for. */
function dropPart(part: GeminiPart, dropped: Set<string>): void {
  const kinds = Object.keys(part).filter((name) => name !== 'thought' && name !== 'thoughtSignature');
  for (const name of kinds) dropped.add(`contents.parts.${name}`);
}

function decodeModelTurn(parts: readonly PlacedPart[], { conversation, dropped, calls }: Translation): void {
  const proofs = parts.map(({ part }) => readProof(part.thoughtSignature));
  // Proofs of ours hold the thoughts, so that clients which leave the thoughts out lose nothing.
  const hasThoughts = proofs.some((proof) => proof !== undefined);
  let number = 0;
  for (const [index, { part, path }] of parts.entries()) {
    const { text, thought, thoughtSignature: signature, functionCall: call } = part;
    const own = proofs[index];
    if (own !== undefined) conversation.reason(own.thoughts, own.signature);
    if (thought === true) {
      if (!hasThoughts) conversation.reason(text ?? '', '');
      continue;
    }
    if (own === undefined && signature !== undefined) {
      conversation.reason('', call === undefined ? packTextSignature(signature) : packCallSignature(number, signature));
    }
    if (call !== undefined) {
      if (call.name === undefined) throw invalidField(`${path}/functionCall/name`, 'must be a string');
      conversation.call(calls.open(call.name, call.id), call.name, JSON.stringify(call.args ?? {}));
      number += 1;
    } else if (text === undefined) dropPart(part, dropped);
    else if (text !== '') conversation.say(text);
  }
}

function decodeUserTurn(parts: readonly PlacedPart[], { conversation, dropped, steps, calls }: Translation): void {
  // Results come first: chat completions want them right after the calls.
  for (const { part, path } of parts) {
    const { functionResponse: result } = part;
    if (result === undefined) continue;
    const callId = calls.answer(result.name ?? '', result.id);
    if (callId === undefined) throw invalidField(`${path}/functionResponse`, 'answers no functionCall before it');
    steps.take(result.parts?.length ?? 0);
    const media = (result.parts ?? []).flatMap((each) => mediaOf(each, dropped));
    const { text, failed } = readResponse(result.response ?? {});
    conversation.result(callId, [{ type: 'text', text }, ...media], { failed });
  }
  const asked = parts.flatMap((placed) =>
    placed.part.functionResponse === undefined ? decodePart(placed, dropped) : [],
  );
  if (asked.length > 0) conversation.ask(asked);
}

/** Returns the attachments of a result. Only inline data is supported; the schema does not check it. */
function mediaOf(value: unknown, dropped: Set<string>): readonly ContentPart[] {
  const data = isRecord(value) ? value.inlineData : undefined;
  if (isRecord(data) && typeof data.mimeType === 'string' && typeof data.data === 'string') {
    return decodePart({ part: { inlineData: { mimeType: data.mimeType, data: data.data } }, path: '' }, dropped);
  }
  dropped.add('contents.parts.functionResponse.parts');
  return [];
}

/** Text, and what a user may attach. */
function decodePart({ part, path }: PlacedPart, dropped: Set<string>): readonly ContentPart[] {
  const { text, inlineData: data, fileData: file } = part;
  if (text !== undefined) return [{ type: 'text', text }];
  if (data !== undefined) {
    const [kind = '', format = ''] = data.mimeType.toLowerCase().split(/[/;]/, 2);
    if (kind === 'audio') {
      return [{ type: 'input_audio', input_audio: { data: data.data, format: format === 'mpeg' ? 'mp3' : format } }];
    }
    return [attachment(data.mimeType, `data:${data.mimeType};base64,${data.data}`, data.displayName)];
  }
  if (file !== undefined) return [attachment(file.mimeType ?? typeOfAddress(file.fileUri, path), file.fileUri)];
  dropPart(part, dropped);
  return [];
}

/** Other APIs, and Vertex as well, need the type of a file. Google finds it out by itself. */
function typeOfAddress(url: string, path: string): string {
  const known = typeOfName(url);
  if (known !== undefined) return known;
  throw invalidField(`${path}/fileData/mimeType`, 'is needed, because the address does not tell the type');
}

function attachment(mimeType: string, url: string, name?: string): ContentPart {
  const [kind = '', format = ''] = mimeType.toLowerCase().split(/[/;]/, 2);
  if (kind === 'image') return { type: 'image_url', image_url: { url } };
  const ending = FILE_ENDINGS.get(format) ?? FILE_ENDINGS.get(`${kind}/${format}`) ?? 'pdf';
  return { type: 'file', file: { file_data: url, filename: name ?? `document.${ending}` } };
}

/** Endings by which the dialects know the type of a file that is sent by its address. */
const FILE_ENDINGS: ReadonlyMap<string, string> = new Map([
  ['plain', 'txt'],
  ['markdown', 'md'],
  ['html', 'html'],
  ['csv', 'csv'],
  ['json', 'json'],
  ['audio/mpeg', 'mp3'],
  ['video/quicktime', 'mov'],
  ['video/x-flv', 'flv'],
  ...['aac', 'aiff', 'flac', 'mp3', 'ogg', 'wav'].map((format) => [`audio/${format}`, format] as const),
  ...['3gpp', 'avi', 'mp4', 'mpeg', 'mpg', 'webm', 'wmv'].map((format) => [`video/${format}`, format] as const),
]);

/** What a function gave back. Google's own names for a text are `output` and `error`; anything else goes as its JSON. */
function readResponse(response: object): { readonly text: string; readonly failed: boolean } {
  const [[name, value] = [], ...more] = Object.entries(response);
  const text = typeof value === 'string' ? value : JSON.stringify(value ?? '');
  if (more.length === 0 && name === 'error') return { text, failed: true };
  if (more.length === 0 && (name === 'output' || name === 'result')) return { text, failed: false };
  return { text: JSON.stringify(response), failed: false };
}

interface CallBook {
  /** Notes a call; its own id, or one that is made, since ids are optional here. */
  open(name: string, id: string | undefined): string;
  /** The id of the call that a result belongs to: the one it names, else the first of this name without a result. */
  answer(name: string, id: string | undefined): string | undefined;
}

function createCallBook(): CallBook {
  const waiting = new Map<string, Set<string>>();
  let made = 0;
  return {
    open(name, id) {
      made += 1;
      const own = id === undefined || id === '' ? `call_${made}` : id;
      const ids = waiting.get(name) ?? new Set();
      waiting.set(name, ids.add(own));
      return own;
    },
    answer(name, id) {
      const ids = waiting.get(name);
      const [first] = ids ?? [];
      const found = id !== undefined && ids?.has(id) === true ? id : first;
      if (found !== undefined) ids?.delete(found);
      return found;
    },
  };
}

type ToolFields = Pick<ChatRequest, 'tools' | 'tool_choice'>;

function decodeTools({ tools = [], toolConfig }: GenerateContentRequest, translation: Translation): ToolFields {
  const functions = tools.flatMap((tool) => decodeTool(tool, translation));
  for (const name of Object.keys(toolConfig ?? {})) {
    if (name !== 'functionCallingConfig') translation.dropped.add(`toolConfig.${name}`);
  }
  if (functions.length === 0) return {};
  const { functionCallingConfig: calling } = toolConfig ?? {};
  const { mode, allowedFunctionNames: names = [] } = calling ?? {};
  // Names count only together with ANY, and chat completions have no mode that validates.
  const taken = mode === 'ANY' ? ['mode', 'allowedFunctionNames'] : mode === 'VALIDATED' ? [] : ['mode'];
  for (const name of unknownMembers('toolConfig.functionCallingConfig', calling, taken)) translation.dropped.add(name);
  if (mode === 'NONE') return { tools: functions, tool_choice: 'none' };
  if (mode !== 'ANY') return { tools: functions };
  // No other API has a list of names; what is not in it is not offered.
  const allowed = new Set(names);
  const offered = functions.filter((tool) => allowed.size === 0 || allowed.has(tool.function?.name ?? ''));
  if (offered.length === 0) {
    throw invalidField('/toolConfig/functionCallingConfig/allowedFunctionNames', 'names no function of the request');
  }
  return { tools: offered, tool_choice: 'required' };
}

/** Tools other than functions are run by Google's servers. */
function decodeTool(tool: GeminiTool, { dropped, steps }: Translation): readonly ChatTool[] {
  const { functionDeclarations: functions = [], ...others } = tool;
  steps.take(1 + functions.length);
  for (const name of Object.keys(others)) dropped.add(`tools.${name}`);
  return functions.map(({ name, description, parameters, parametersJsonSchema: given, ...own }) => {
    for (const other of Object.keys(own)) dropped.add(`tools.functionDeclarations.${other}`);
    const schema = given ?? (parameters === undefined ? undefined : jsonSchemaOf(parameters, steps));
    return {
      type: 'function',
      function: {
        name,
        ...(description !== undefined && { description }),
        ...(schema !== undefined && { parameters: schema }),
      },
    };
  });
}

function decodeConfig(config: GenerationConfig): Partial<ChatRequest> {
  const { temperature, topP, topK, maxOutputTokens, stopSequences: stop = [], seed } = config;
  const { presencePenalty, frequencyPenalty, responseLogprobs, logprobs } = config;
  if (stop.length > MAX_STOPS)
    throw invalidField('/generationConfig/stopSequences', `has more than ${MAX_STOPS} items`);
  return {
    ...(isPresent(temperature) && { temperature }),
    ...(isPresent(topP) && { top_p: topP }),
    ...(isPresent(topK) && { top_k: topK }),
    ...(isPresent(maxOutputTokens) && { max_completion_tokens: maxOutputTokens }),
    ...(stop.length > 0 && { stop }),
    ...(isPresent(seed) && { seed }),
    ...(isPresent(presencePenalty) && { presence_penalty: presencePenalty }),
    ...(isPresent(frequencyPenalty) && { frequency_penalty: frequencyPenalty }),
    ...(responseLogprobs === true && { logprobs: true, ...(isPresent(logprobs) && { top_logprobs: logprobs }) }),
  };
}

function answerFormat(config: GenerationConfig, { dropped, steps }: Translation): Pick<ChatRequest, 'response_format'> {
  const { responseMimeType: type = 'text/plain', responseSchema: own, responseJsonSchema: given } = config;
  if (type === 'text/plain') return {};
  if (type !== 'application/json') {
    dropped.add('generationConfig.responseMimeType');
    return {};
  }
  const schema = given ?? (own === undefined ? undefined : jsonSchemaOf(own, steps));
  if (schema === undefined) return { response_format: { type: 'json_object' } };
  return { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } } };
}

/** A level as it is; a budget, with the effort that it amounts to. Without thoughts (0), and with as many as needed (-1): no effort. */
function reasoningEffort(thinking: NonNullable<GenerationConfig['thinkingConfig']>): ThinkingWish {
  const { thinkingBudget: budget, thinkingLevel: level } = thinking;
  if (level !== undefined && level !== 'THINKING_LEVEL_UNSPECIFIED') return { reasoning_effort: level.toLowerCase() };
  if (!isPresent(budget)) return {};
  return budget > 0 ? effortOfBudget(budget) : { thinking_budget: budget };
}
