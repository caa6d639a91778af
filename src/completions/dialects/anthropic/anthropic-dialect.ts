import type { ChatChunk, ChatRequest, ToolCall } from '../../contract/chat.ts';
import {
  ANSWER_TOOL,
  ANSWER_TOOL_DESCRIPTION,
  ANY_OBJECT,
  addArguments,
  addCitation,
  addHiddenThinking,
  addSignature,
  addText,
  addThinking,
  type BlockStream,
  callId,
  choiceOf,
  closeAll,
  closeBlock,
  completionOf,
  createBlockStream,
  deltaChunk,
  failedStep,
  hasOpenObject,
  headOf,
  isOverfull,
  lastStep,
  nameLostKeywords,
  silentStep,
  startTool,
  stepOf,
  strictSchema,
  usageChunk,
} from '../answer.ts';
import { type Annotation, citedAt, readClaudeCitation } from '../citations.ts';
import { nothingStored, readConversation } from '../conversation.ts';
import type {
  DecodedAnswer,
  Dialect,
  DialectContext,
  Steps,
  StreamEvent,
  StreamStep,
  UpstreamRequest,
} from '../dialect.ts';
import { brokenAnswer, failureInBody, failureInEvent, failureInObject, isFailureObject, noObject } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject, parseEvent } from '../json-value.ts';
import {
  answerSchema,
  maxTokens,
  readTools,
  STRICT_FIELD,
  startTranslation,
  type ToolUse,
  takenFields,
  thinkingBudget,
  visibleStops,
} from '../request-fields.ts';
import { encodeText, encodeTurns, packHiddenThinking, packThinking } from './anthropic-messages.ts';
import {
  type ClaudeModel,
  claudeModel,
  claudeUsage,
  encodeThinking,
  mergeClaudeUsage,
  readSampling,
} from './claude-model.ts';

export const anthropicDialect: Dialect<AnthropicStreamState> = {
  name: 'anthropic',
  framing: 'sse',
  encodeRequest: encodeAnthropicRequest,
  decodeResponse: decodeAnthropicAnswer,
  decodeFailure: failureInBody,
  startStream: startAnthropicStream,
  decodeEvent: decodeAnthropicEvent,
};

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['pause_turn', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['refusal', 'content_filter'],
]);

/** A call of the answer tool is the answer itself, not a call. */
function finishReason(stopReason: unknown, calls: number): string {
  const reason = FINISH_REASONS.get(stopReason) ?? (calls > 0 ? 'tool_calls' : 'stop');
  return reason === 'tool_calls' && calls === 0 ? 'stop' : reason;
}

function decodeAnthropicAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined) return { failure: brokenAnswer() };
  if (isFailureObject(answer, Array.isArray(answer.content))) return { failure: failureInObject(answer) };
  if (!Array.isArray(answer.content)) return { failure: brokenAnswer('The answer of the model API has no content.') };
  const read = readBlocks(answer.content, asWords(answer.id) ?? context.id);
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id, model: asWords(answer.model) ?? own.model };
  const refusal = asWords(asObject(answer.stop_details)?.explanation);
  const stopSequence = asWords(answer.stop_sequence);
  const reason = finishReason(answer.stop_reason, read.calls.length);
  const choice = choiceOf({ ...read, refusal, finishReason: reason, stopSequence });
  const usage = asObject(answer.usage);
  const { container } = answer;
  return completionOf(head, [choice], usage === undefined ? undefined : claudeUsage({ ...usage, container }));
}

function readBlocks(blocks: readonly unknown[], answerId: string) {
  let text = '';
  let reasoning = '';
  let signature = '';
  const calls: ToolCall[] = [];
  const annotations: Annotation[] = [];
  for (const value of blocks) {
    const block = asObject(value);
    if (block?.type === 'text') {
      const start = text.length;
      text += asText(block.text) ?? '';
      for (const each of asList(block.citations).map(readClaudeCitation)) {
        if (each !== undefined) annotations.push(citedAt(each, start, text.length));
      }
    } else if (block?.type === 'thinking') {
      const thinking = asText(block.thinking) ?? '';
      reasoning += thinking;
      signature += packThinking(thinking.length, text.length, asText(block.signature) ?? '');
    } else if (block?.type === 'redacted_thinking') {
      signature += packHiddenThinking(text.length, asText(block.data) ?? '');
    } else if (block?.type === 'tool_use') {
      const name = asText(block.name) ?? '';
      const input = JSON.stringify(block.input ?? {});
      if (name === ANSWER_TOOL) text += input;
      else
        calls.push({
          id: asWords(block.id) ?? callId(answerId, calls.length),
          type: 'function',
          function: { name, arguments: input },
        });
    }
  }
  return { text, reasoning, signature, calls, annotations };
}

export interface AnthropicStreamState {
  readonly stream: BlockStream;
  readonly usage: JsonObject;
  finished: boolean;
}

function startAnthropicStream(context: DialectContext): AnthropicStreamState {
  return { stream: createBlockStream(context), usage: {}, finished: false };
}

type Step = StreamStep<AnthropicStreamState>;

function decodeAnthropicEvent(state: AnthropicStreamState, { event, data }: StreamEvent): Step {
  if (data === '' || data === '[DONE]') return silentStep(state);
  const body = parseEvent(data);
  if (event === 'error') return failedStep(state, failureInEvent(data, body));
  if (body === undefined) return failedStep(state, noObject());
  const { stream } = state;
  switch (body.type ?? event) {
    case 'content_block_delta':
      return stepOf(state, addDelta(stream, asCount(body.index), asObject(body.delta) ?? {}));
    case 'content_block_start':
      return startBlock(state, asCount(body.index), asObject(body.content_block) ?? {});
    case 'content_block_stop':
      return stepOf(state, closeBlock(stream, asCount(body.index)));
    case 'message_start':
      return startMessage(state, asObject(body.message) ?? {});
    case 'message_delta':
      return finishMessage(state, body);
    case 'message_stop':
      return lastStep(state);
    default:
      return isFailureObject(body, body.type !== undefined)
        ? failedStep(state, failureInObject(body))
        : silentStep(state);
  }
}

function startMessage(state: AnthropicStreamState, message: JsonObject): Step {
  const { head } = state.stream;
  head.id = asWords(message.id) ?? head.id;
  head.model = asWords(message.model) ?? head.model;
  mergeClaudeUsage(state.usage, message.usage, message.container);
  return stepOf(state, [deltaChunk(head, { role: 'assistant', content: '' })]);
}

function startBlock(state: AnthropicStreamState, index: number, block: JsonObject): Step {
  const { stream } = state;
  if (isOverfull(stream))
    return failedStep(state, brokenAnswer('The stream of the model API opens blocks without end.'));
  switch (block.type) {
    case 'text':
      return stepOf(state, addText(stream, block.text));
    case 'tool_use': {
      const call = { id: asWords(block.id), name: asText(block.name) ?? '', input: block.input };
      return stepOf(state, startTool(stream, index, call));
    }
    case 'thinking':
      addSignature(stream, index, block.signature);
      return stepOf(state, addThinking(stream, index, block.thinking));
    case 'redacted_thinking':
      return stepOf(state, addHiddenThinking(stream, block.data));
    default:
      return silentStep(state);
  }
}

function addDelta(stream: BlockStream, index: number, delta: JsonObject): readonly ChatChunk[] {
  switch (delta.type) {
    case 'text_delta':
      return addText(stream, delta.text);
    case 'input_json_delta':
      return addArguments(stream, index, delta.partial_json);
    case 'thinking_delta':
      return addThinking(stream, index, delta.thinking);
    case 'signature_delta':
      return addSignature(stream, index, delta.signature);
    case 'citations_delta':
      return addCitation(stream, readClaudeCitation(delta.citation));
    default:
      return [];
  }
}

function finishMessage(state: AnthropicStreamState, body: JsonObject): Step {
  const delta = asObject(body.delta) ?? {};
  mergeClaudeUsage(state.usage, body.usage, delta.container);
  if (asWords(delta.stop_reason) === undefined || state.finished) return silentStep(state);
  const refusal = asWords(asObject(delta.stop_details)?.explanation);
  const chunks = refusal === undefined ? [] : [deltaChunk(state.stream.head, { refusal })];
  return stepOf(state, [...chunks, ...finish(state, delta)]);
}

function finish(
  state: AnthropicStreamState,
  { stop_reason: stopReason, stop_sequence: stop }: JsonObject,
): readonly ChatChunk[] {
  state.finished = true;
  const { stream } = state;
  const closing = closeAll(stream);
  const last = deltaChunk(stream.head, {}, finishReason(stopReason, stream.calls), 0, asWords(stop));
  const usage = claudeUsage(state.usage);
  return [...closing, last, ...(usage.total_tokens > 0 ? [usageChunk(stream.head, usage)] : [])];
}

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'stop', 'tools', 'tool_choice', 'user'],
  ...['parallel_tool_calls', 'response_format', 'reasoning_effort'],
);

function encodeAnthropicRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const model = claudeModel(context);
  const { names, extra, steps } = startTranslation(request, TAKEN);
  refuseContainer(extra);
  const { system, turns, calledNames } = readConversation(request.messages, steps);
  const instructions = system.filter(({ text }) => text.trim() !== '');
  const messages = encodeTurns(turns, names, steps);
  const schema = answerSchema(request);
  // Claude closes every object, which an open one does not survive unless the caller asked for that.
  const native = schema !== undefined && model.followsSchema && (schema.strict || !hasOpenObject(schema.schema, steps));
  const wantsObject = request.response_format?.type === 'json_object';
  const toolSchema = native ? undefined : (schema?.schema ?? (wantsObject ? ANY_OBJECT : undefined));
  const tools = encodeTools(request, { model, toolSchema, calledNames, dropped: names, steps });
  const limit = maxTokens(request) ?? context.maxOutputTokens ?? model.defaultMaxTokens;
  const thinking = encodeThinking({
    effort: request.reasoning_effort ?? undefined,
    budget: thinkingBudget(request),
    model,
    limit,
    lacksThinking: calledWithoutThinking(messages),
    forced: tools.forced,
    dropped: names,
  });
  const { temperature, topP } = readSampling(request, model, thinking.thinking?.type === 'enabled', names);
  const stop = visibleStops(request, names);
  const outputConfig = {
    ...(thinking.effort !== undefined && { effort: thinking.effort }),
    ...(native && { format: { type: 'json_schema', schema: closedSchema(schema.schema, ANSWER_FIELD, names, steps) } }),
  };
  const body: JsonObject = {
    model: context.model,
    max_tokens: limit,
    ...(instructions.length > 0 && { system: instructions.map(encodeText) }),
    messages,
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { top_p: topP }),
    ...(stop !== undefined && { stop_sequences: stop }),
    ...(context.stream && { stream: true }),
    ...tools.fields,
    ...(thinking.thinking !== undefined && { thinking: thinking.thinking }),
    ...(Object.keys(outputConfig).length > 0 && { output_config: outputConfig }),
    ...(typeof request.user === 'string' && { metadata: { user_id: request.user } }),
    ...extra,
  };
  return { path: '/messages', headers: { 'anthropic-version': '2023-06-01' }, body, dropped: [...names] };
}

/** A container lies in the operator's account, which all callers share, and a chat completion does not say whose it is. */
function refuseContainer({ container }: JsonObject): void {
  const id = asText(container) ?? asText(asObject(container)?.id);
  if (id !== undefined) throw nothingStored({ id, path: '/container' });
}

interface EncodedTools {
  readonly fields: JsonObject;
  /** The model must call something, and thinking is not allowed then. */
  readonly forced: boolean;
}

interface ToolOptions {
  readonly model: ClaudeModel;
  /** What the answer must be like, where a tool asks for it. */
  readonly toolSchema: JsonObject | undefined;
  readonly calledNames: ReadonlySet<string>;
  readonly dropped: Set<string>;
  readonly steps: Steps;
}

const ANSWER_FIELD = 'response_format.json_schema.schema';
const TOOL_FIELD = 'tools.function.parameters';

/** A schema for strict decoding; what it loses is named. */
function closedSchema(schema: unknown, field: string, dropped: Set<string>, steps: Steps): unknown {
  const lost = new Set<string>();
  const closed = strictSchema(schema, steps, lost);
  nameLostKeywords(field, lost, dropped);
  return closed;
}

function encodeTools(
  request: ChatRequest,
  { model: { followsSchema }, toolSchema, calledNames, dropped, steps }: ToolOptions,
): EncodedTools {
  const use = readTools(request, steps);
  for (const name of use.dropped) dropped.add(name);
  const tools = use.functions.map((definition): JsonObject => {
    const { name, description, parameters, strict, ...own } = definition;
    if (strict === true && !followsSchema) dropped.add(STRICT_FIELD);
    return {
      ...own,
      name,
      ...(description !== undefined && { description }),
      input_schema:
        strict === true && followsSchema
          ? closedSchema(objectSchema(parameters), TOOL_FIELD, dropped, steps)
          : objectSchema(parameters),
      ...(strict === true && followsSchema && { strict: true }),
    };
  });
  if (toolSchema !== undefined) {
    tools.push({ name: ANSWER_TOOL, description: ANSWER_TOOL_DESCRIPTION, input_schema: objectSchema(toolSchema) });
    const choice = use.functions.length > 0 ? { type: 'any' } : { type: 'tool', name: ANSWER_TOOL };
    return { fields: { tools, tool_choice: choice }, forced: true };
  }
  if (tools.length === 0 && calledNames.size > 0) {
    // Calls in a conversation need their tools, whether they may be called again or not.
    for (const name of calledNames) tools.push({ name, input_schema: { type: 'object' } });
    return { fields: { tools, tool_choice: { type: 'none' } }, forced: false };
  }
  if (tools.length === 0) return { fields: {}, forced: false };
  const choice = encodeChoice(use, request.parallel_tool_calls === false);
  return {
    fields: { tools, ...(choice !== undefined && { tool_choice: choice }) },
    forced: choice?.type === 'any' || choice?.type === 'tool',
  };
}

function encodeChoice({ choice }: ToolUse, oneAtATime: boolean): JsonObject | undefined {
  const single = oneAtATime && { disable_parallel_tool_use: true };
  if (choice === 'none') return { type: 'none' };
  if (choice === 'required') return { type: 'any', ...single };
  if (choice !== 'auto') return { type: 'tool', name: choice.name, ...single };
  return oneAtATime ? { type: 'auto', ...single } : undefined;
}

function objectSchema(parameters: unknown): JsonObject {
  return { type: 'object', ...(parameters as JsonObject | undefined) };
}

/** A client may have lost the thinking of a turn that called tools. */
function calledWithoutThinking(messages: readonly JsonObject[]): boolean {
  const last = messages.findLast(({ role }) => role === 'assistant');
  const blocks = (last?.content ?? []) as readonly JsonObject[];
  return blocks.some(({ type }) => type === 'tool_use') && !String(blocks[0]?.type).endsWith('thinking');
}
