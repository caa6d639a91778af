import type { ChatRequest } from '../../contract/chat.ts';
import { nameLostMembers, readConversation } from '../conversation.ts';
import { createSteps, type DialectContext, type Steps, type UpstreamRequest } from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';
import {
  answerSchema,
  maxTokens,
  readTools,
  sortFields,
  type ToolUse,
  takenFields,
  visibleStops,
} from '../request-fields.ts';
import {
  ANSWER_TOOL,
  ANSWER_TOOL_DESCRIPTION,
  ANY_OBJECT,
  hasOpenObject,
  nameLostKeywords,
  strictSchema,
} from '../structured-answer.ts';
import { encodeText, encodeTurns } from './anthropic-messages.ts';
import { type ClaudeModel, claudeModel, encodeThinking, readSampling } from './claude-model.ts';

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'stop', 'tools', 'tool_choice', 'user'],
  ...['parallel_tool_calls', 'response_format', 'reasoning_effort'],
);

export function encodeAnthropicRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const model = claudeModel(context.model);
  const { dropped, extra } = sortFields(request, TAKEN);
  const names = new Set(dropped);
  nameLostMembers(request.messages, names);
  const steps = createSteps();
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
    ...(temperature !== undefined && { temperature: Math.min(1, temperature) }),
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
