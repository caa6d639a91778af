import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  addPartialArguments,
  createPartialArguments,
  type PartialArguments,
} from '../../src/completions/dialects/google/partial-arguments.ts';
import {
  askThrough,
  dialectOf,
  digestOf,
  type Ingress,
  type Recording,
  recordedBody,
  recordedEvents,
  recordedFolder,
  recordings,
  startDialectUpstreams,
} from '../kit/completions/dialect-upstreams.ts';
import { answers, streams } from '../kit/scripted-upstream.ts';

/** What a client reads, in the words of the recordings. */
interface ReadAnswer {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly string[];
  readonly finish: string;
  readonly usage: Readonly<Record<string, number>>;
  readonly failed: boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: a test reads any part of an answer.
type Json = any;

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [name, sorted(value[name])]),
  );
}

function callOf(name: string, argumentsText: string): string {
  let text = argumentsText;
  try {
    text = JSON.stringify(sorted(JSON.parse(argumentsText === '' ? '{}' : argumentsText)));
  } catch {
    // Kept as it is.
  }
  return `${name} ${digestOf(text)}`;
}

function eventsOf(text: string): Json[] {
  return text
    .split(/\r?\n\r?\n/)
    .filter((event) => event.includes('data: '))
    .map((event) => event.slice(event.indexOf('data: ') + 'data: '.length))
    .filter((data) => data !== '[DONE]')
    .map((data) => JSON.parse(data));
}

function chatUsage(usage: Json) {
  return {
    prompt: usage?.prompt_tokens ?? 0,
    completion: usage?.completion_tokens ?? 0,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
    reasoningTokens: usage?.completion_tokens_details?.reasoning_tokens ?? 0,
  };
}

function readChat(bodies: readonly Json[], stream: boolean): ReadAnswer {
  const calls: { name: string; text: string }[] = [];
  let text = '';
  let reasoning = '';
  let finish = '';
  let usage: Json;
  for (const body of bodies) {
    usage = body.usage ?? usage;
    const choice = body.choices?.[0];
    if (choice === undefined) continue;
    const said = stream ? choice.delta : choice.message;
    if (typeof said.content === 'string') text += said.content;
    else if (said.content !== undefined && said.content !== null) text += `not text: ${JSON.stringify(said.content)}`;
    reasoning += said.reasoning_content ?? '';
    finish = choice.finish_reason ?? finish;
    for (const [position, call] of (said.tool_calls ?? []).entries()) {
      const index = call.index ?? position;
      calls[index] ??= { name: '', text: '' };
      calls[index].name += call.function?.name ?? '';
      calls[index].text += call.function?.arguments ?? '';
    }
  }
  return {
    text: digestOf(text),
    reasoning: digestOf(reasoning),
    calls: calls.map((call) => callOf(call.name, call.text)),
    finish,
    usage: chatUsage(usage),
    failed: bodies.some((body) => body.error !== undefined && body.error !== null),
  };
}

const FINISHES: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  refusal: 'content_filter',
};

function readMessages(bodies: readonly Json[], stream: boolean): ReadAnswer {
  const blocks: Json[] = stream ? [] : (bodies[0].content ?? []);
  let usage: Json = stream ? {} : bodies[0].usage;
  let finish: string = stream ? '' : bodies[0].stop_reason;
  for (const body of stream ? bodies : []) {
    if (body.type === 'message_start') usage = body.message.usage;
    if (body.type === 'content_block_start') blocks[body.index] = { ...body.content_block, json: '' };
    const block = blocks[body.index];
    if (body.type === 'content_block_delta') {
      block.text = (block.text ?? '') + (body.delta.text ?? '');
      block.thinking = (block.thinking ?? '') + (body.delta.thinking ?? '');
      block.json = (block.json ?? '') + (body.delta.partial_json ?? '');
    }
    if (body.type === 'message_delta') {
      finish = body.delta.stop_reason;
      // As Anthropic's library does: what the last event does not say holds as it was said first.
      usage = { ...usage, ...body.usage };
    }
  }
  const inputOf = (block: Json) => (stream ? block.json : JSON.stringify(block.input));
  return {
    text: digestOf(blocks.map(({ type, text }) => (type === 'text' ? text : '')).join('')),
    reasoning: digestOf(blocks.map(({ type, thinking }) => (type === 'thinking' ? thinking : '')).join('')),
    calls: blocks.filter(({ type }) => type === 'tool_use').map((block) => callOf(block.name, inputOf(block))),
    finish: FINISHES[finish] ?? finish,
    usage: {
      prompt:
        (usage?.input_tokens ?? 0) + (usage?.cache_read_input_tokens ?? 0) + (usage?.cache_creation_input_tokens ?? 0),
      completion: usage?.output_tokens ?? 0,
      cached: usage?.cache_read_input_tokens ?? 0,
      cacheWritten: usage?.cache_creation_input_tokens ?? 0,
    },
    failed: bodies.some(({ type }) => type === 'error'),
  };
}

function readResponses(bodies: readonly Json[], stream: boolean): ReadAnswer {
  const response = stream ? bodies.findLast((body) => body.response !== undefined)?.response : bodies[0];
  const output: Json[] = response?.output ?? [];
  const calls = output.filter(({ type }) => type === 'function_call');
  const ofParts = (type: string, read: (item: Json) => string) =>
    output
      .filter((item) => item.type === type)
      .map(read)
      .join('');
  const reason = response?.incomplete_details?.reason;
  return {
    text: digestOf(ofParts('message', ({ content }) => content.map((part: Json) => part.text ?? '').join(''))),
    reasoning: digestOf(ofParts('reasoning', ({ summary }) => summary.map((part: Json) => part.text).join(''))),
    calls: calls.map((call) => callOf(call.name, call.arguments)),
    finish: reason === 'max_output_tokens' ? 'length' : (reason ?? (calls.length > 0 ? 'tool_calls' : 'stop')),
    usage: {
      prompt: response?.usage?.input_tokens ?? 0,
      completion: response?.usage?.output_tokens ?? 0,
      cached: response?.usage?.input_tokens_details?.cached_tokens ?? 0,
      reasoningTokens: response?.usage?.output_tokens_details?.reasoning_tokens ?? 0,
    },
    failed: bodies.some(({ type }) => type === 'response.failed'),
  };
}

const GEMINI_FINISHES: Readonly<Record<string, string>> = {
  STOP: 'stop',
  MAX_TOKENS: 'length',
  SAFETY: 'content_filter',
};

function readGemini(bodies: readonly Json[]): ReadAnswer {
  const calls: { name: string; args: Json; partial?: PartialArguments }[] = [];
  let text = '';
  let reasoning = '';
  let finish = '';
  let usage: Json = {};
  for (const body of bodies) {
    usage = body.usageMetadata ?? usage;
    const candidate = body.candidates?.[0];
    finish = candidate?.finishReason ?? finish;
    for (const part of candidate?.content?.parts ?? []) {
      if (part.thought === true) reasoning += part.text ?? '';
      else text += part.text ?? '';
      if (part.functionCall === undefined) continue;
      const { name, args = {}, partialArgs } = part.functionCall;
      if (name !== undefined) calls.push({ name, args });
      const call = calls.at(-1);
      if (partialArgs === undefined || call === undefined) continue;
      call.partial ??= createPartialArguments(0);
      assert.ok(addPartialArguments(call.partial, partialArgs));
      call.args = call.partial.value;
    }
  }
  const thoughts = usage.thoughtsTokenCount ?? 0;
  return {
    text: digestOf(text),
    reasoning: digestOf(reasoning),
    calls: calls.map(({ name, args }) => callOf(name, JSON.stringify(args))),
    finish: finish === 'STOP' && calls.length > 0 ? 'tool_calls' : (GEMINI_FINISHES[finish] ?? finish),
    usage: {
      prompt: (usage.promptTokenCount ?? 0) + (usage.toolUsePromptTokenCount ?? 0),
      completion: (usage.candidatesTokenCount ?? 0) + thoughts,
      cached: usage.cachedContentTokenCount ?? 0,
      reasoningTokens: thoughts,
    },
    failed: bodies.some((body) => body.error !== undefined),
  };
}

const READERS = {
  chat: readChat,
  messages: readMessages,
  responses: readResponses,
  gemini: readGemini,
  geminiArray: readGemini,
};
/** Thoughts are shown to those who ask for them. */
const THOUGHTS = { generationConfig: { thinkingConfig: { includeThoughts: true } } };

const folder = recordedFolder();
const skip = folder === undefined ? 'the folder with recorded answers is not there' : false;

/** What of a recording is compared on an ingress: not the fields in which Trestle decides differently. */
function compare(recording: Recording, ingress: keyof typeof READERS, read: ReadAnswer): void {
  const where = `${recording.folder}/${recording.file} through ${ingress}`;
  const ours = new Set((recording.ours ?? []).map((name) => name.replace(`${ingress}.`, '')));
  const { want } = recording;
  assert.ok(!read.failed, `${where} failed`);
  if (!ours.has('text')) assert.equal(read.text, want.text, `text of ${where}`);
  if (!ours.has('reasoning')) assert.equal(read.reasoning, want.reasoning, `reasoning of ${where}`);
  if (!ours.has('calls')) assert.deepEqual(read.calls, want.calls, `calls of ${where}`);
  if (!ours.has('finish')) assert.equal(read.finish, want.finish, `finish of ${where}`);
  if (want.usage === undefined) return;
  for (const [name, count] of Object.entries(read.usage)) {
    if (!ours.has(name)) assert.equal(count, want.usage[name], `${name} of ${where}`);
  }
}

test('DC-7, DC-14, DC-16, DC-20: recorded answers of real providers are read in full on every ingress', {
  skip,
}, async (t) => {
  if (folder === undefined) return;
  const upstreams = await startDialectUpstreams(t);
  const problems: string[] = [];
  for (const recording of recordings(folder)) {
    const { stream } = recording;
    upstreams.script(stream ? streams(recordedEvents(folder, recording)) : answers(recordedBody(folder, recording)));
    for (const ingress of Object.keys(READERS) as (keyof typeof READERS & Ingress)[]) {
      const more = {
        stream,
        ...(ingress === 'chat' && stream && { stream_options: { include_usage: true } }),
        ...(ingress.startsWith('gemini') && THOUGHTS),
      };
      const response = await askThrough(upstreams, ingress, dialectOf(recording), more);
      const text = await response.text();
      try {
        assert.equal(response.status, 200, text);
        const bodies = stream && ingress !== 'geminiArray' ? eventsOf(text) : [JSON.parse(text)].flat();
        compare(recording, ingress, READERS[ingress](bodies, stream));
      } catch (error) {
        problems.push((error as Error).message);
      }
    }
  }
  assert.deepEqual(problems, []);
});
