import type { StreamEvent } from '../../../src/completions/dialects/dialect.ts';
import { chatCall, claudeEvents, type Marks, type Piece, responsesEvents, stops } from './answer-pieces.ts';
import { dataEvents, namedEvents } from './read-stream.ts';
import type { Json } from './translate-request.ts';

export const PIECES = {
  openai: ['thinking', 'text', 'sources', 'calls', 'refusal', 'speech', 'logprobs', 'stop', 'usage'],
  responses: ['thinking', 'text', 'sources', 'calls', 'refusal', 'image', 'logprobs', 'server tools', 'usage'],
  anthropic: ['thinking', 'text', 'sources', 'calls', 'refusal', 'stop', 'server tools', 'usage'],
  google: ['thinking', 'text', 'sources', 'calls', 'image', 'server tools', 'ratings', 'usage'],
  bedrock: ['thinking', 'text', 'sources', 'calls', 'usage'],
  cohere: ['thinking', 'text', 'sources', 'calls'],
} as const satisfies Readonly<Record<string, readonly Piece[]>>;
export type Upstream = keyof typeof PIECES;

interface Answer {
  readonly whole: Json;
  readonly events: readonly StreamEvent[];
}

const url = (marks: Marks) => `https://example.com/${marks.text('address of a source')}`;
const many = 90_000_000;

export const ANSWERS: Readonly<Record<Upstream, (has: ReadonlySet<Piece>, marks: Marks) => Answer>> = {
  openai(has, marks) {
    const token = has.has('logprobs') && has.has('text') ? marks.text('log probabilities') : '';
    const delta = {
      ...(has.has('thinking') && { reasoning_content: marks.text('thinking') }),
      ...(has.has('text') && { content: marks.text('text') }),
      ...(has.has('sources') &&
        has.has('text') && {
          annotations: [
            {
              type: 'url_citation',
              url_citation: { url: url(marks), title: marks.text('title of a source'), start_index: 0, end_index: 4 },
            },
          ],
        }),
      ...(has.has('refusal') && { refusal: marks.text('refusal') }),
      ...(has.has('speech') && { audio: { id: 'a', data: marks.data('speech') } }),
    };
    const calls = has.has('calls') ? [chatCall(marks)] : [];
    const end = {
      finish_reason: calls.length > 0 ? 'tool_calls' : 'stop',
      ...(stops(has) && { stop_reason: marks.keep('stop sequence', 'stop-sequence') }),
    };
    const logprobs = token === '' ? {} : { logprobs: { content: [{ token, logprob: -0.5, top_logprobs: [] }] } };
    const usage = {
      prompt_tokens: many,
      completion_tokens: many,
      total_tokens: 2 * many,
      ...(has.has('usage') && {
        prompt_tokens_details: {
          cached_tokens: marks.count('cached tokens'),
          audio_tokens: marks.count('tokens of audio and images'),
        },
        completion_tokens_details: { reasoning_tokens: marks.count('tokens of thinking') },
      }),
    };
    const top = { id: 'c', model: 'm', created: 1 };
    const chunk = (choice: object) => ({ ...top, choices: [{ index: 0, ...choice }] });
    return {
      whole: {
        ...top,
        choices: [
          { index: 0, message: { ...delta, ...(calls.length > 0 && { tool_calls: calls }) }, ...logprobs, ...end },
        ],
        usage,
      },
      events: dataEvents(
        chunk({ delta, ...logprobs }),
        ...calls.map((call) => chunk({ delta: { tool_calls: [{ index: 0, ...call }] } })),
        chunk({ delta: {}, ...end }),
        { ...top, choices: [], usage },
        '[DONE]',
      ),
    };
  },
  responses(has, marks) {
    const items: Json[] = [];
    if (has.has('thinking')) {
      items.push({
        type: 'reasoning',
        summary: [{ type: 'summary_text', text: marks.text('thinking') }],
        encrypted_content: marks.data('proof of thinking'),
      });
    }
    if (has.has('server tools')) {
      items.push({
        type: 'web_search_call',
        action: { type: 'search', query: marks.text('work of tools that the API runs') },
      });
    }
    if (has.has('text')) {
      const part = {
        type: 'output_text',
        text: marks.text('text'),
        annotations: has.has('sources')
          ? [
              {
                ...{ type: 'url_citation', url: url(marks), title: marks.text('title of a source') },
                ...{ start_index: 0, end_index: 4 },
              },
              {
                ...{ type: 'file_citation', file_id: 'f', filename: marks.text('title of a source') },
                index: marks.count('place in a document'),
              },
            ]
          : [],
        logprobs: has.has('logprobs')
          ? [{ token: marks.text('log probabilities'), logprob: -1, top_logprobs: [] }]
          : [],
      };
      items.push({ type: 'message', role: 'assistant', content: [part] });
    }
    if (has.has('refusal')) {
      const part = { type: 'refusal', refusal: marks.text('refusal') };
      items.push({ type: 'message', role: 'assistant', content: [part] });
    }
    if (has.has('image')) items.push({ type: 'image_generation_call', result: marks.data('images') });
    if (has.has('calls')) {
      const { id, function: called } = chatCall(marks);
      items.push({ type: 'function_call', call_id: id, ...called });
    }
    const usage = {
      input_tokens: many,
      output_tokens: many,
      ...(has.has('usage') && {
        input_tokens_details: { cached_tokens: marks.count('cached tokens') },
        output_tokens_details: { reasoning_tokens: marks.count('tokens of thinking') },
      }),
    };
    const response = { id: 'r', model: 'm', status: 'completed', output: items, usage };
    return {
      whole: response,
      events: dataEvents(
        { type: 'response.created', response: { id: 'r', model: 'm' } },
        ...items.flatMap((item, output_index) => responsesEvents(item, output_index)),
        { type: 'response.completed', response },
      ),
    };
  },
  anthropic(has, marks) {
    const blocks: Json[] = [];
    if (has.has('thinking')) {
      blocks.push({
        type: 'thinking',
        thinking: marks.text('thinking'),
        signature: marks.data('proof of thinking'),
      });
      blocks.push({ type: 'redacted_thinking', data: marks.data('proof of thinking') });
    }
    if (has.has('server tools')) {
      const query = marks.text('work of tools that the API runs');
      blocks.push({ type: 'server_tool_use', id: 's', name: 'web_search', input: { query } });
      blocks.push({
        type: 'web_search_tool_result',
        tool_use_id: 's',
        content: [{ type: 'web_search_result', title: marks.text('work of tools that the API runs') }],
      });
    }
    if (has.has('text')) {
      const quote = () => ({ cited_text: marks.text('words of a source') });
      const citations = has.has('sources')
        ? [
            {
              ...{ type: 'web_search_result_location', url: url(marks), title: marks.text('title of a source') },
              ...{ ...quote(), encrypted_index: 'e' },
            },
            {
              ...{ type: 'char_location', document_index: 0, document_title: marks.text('title of a source') },
              ...{ ...quote(), start_char_index: marks.count('place in a document'), end_char_index: 9_000_000 },
            },
          ]
        : [];
      blocks.push({ type: 'text', text: marks.text('text'), citations });
      blocks.push({ type: 'text', text: marks.text('text') });
    }
    if (has.has('calls')) {
      const { id, function: called } = chatCall(marks);
      blocks.push({ type: 'tool_use', id, name: called.name, input: JSON.parse(called.arguments) });
    }
    const usage = {
      input_tokens: many,
      output_tokens: many,
      ...(has.has('usage') && {
        service_tier: marks.text('tier of service'),
        cache_read_input_tokens: marks.count('cached tokens'),
        cache_creation: { ephemeral_1h_input_tokens: marks.count('tokens written into a cache for an hour') },
        cache_creation_input_tokens: marks.count('tokens written into a cache'),
        output_tokens_details: { thinking_tokens: marks.count('tokens of thinking') },
        server_tool_use: { web_search_requests: marks.count('number of searches') },
      }),
    };
    const end = {
      stop_reason: has.has('refusal') ? 'refusal' : has.has('calls') ? 'tool_use' : 'end_turn',
      ...(has.has('refusal') && { stop_details: { explanation: marks.text('refusal') } }),
      ...(stops(has) && {
        stop_reason: 'stop_sequence',
        stop_sequence: marks.keep('stop sequence', 'stop-sequence'),
      }),
    };
    return {
      whole: { id: 'm', type: 'message', model: 'm', content: blocks, ...end, usage },
      events: dataEvents(
        { type: 'message_start', message: { id: 'm', model: 'm', usage: { input_tokens: many } } },
        ...blocks.flatMap((block, index) => claudeEvents(block, index)),
        { type: 'message_delta', delta: end, usage },
        { type: 'message_stop' },
      ),
    };
  },
  google(has, marks) {
    const parts: Json[] = [];
    if (has.has('thinking')) parts.push({ text: marks.text('thinking'), thought: true });
    if (has.has('server tools')) {
      parts.push({ executableCode: { language: 'PYTHON', code: marks.text('work of tools that the API runs') } });
      parts.push({ codeExecutionResult: { output: marks.text('work of tools that the API runs') } });
    }
    if (has.has('text')) parts.push({ text: marks.text('text') });
    if (has.has('image')) parts.push({ inlineData: { mimeType: 'image/png', data: marks.data('images') } });
    if (has.has('calls')) {
      const { id, function: called } = chatCall(marks);
      parts.push({
        functionCall: { id, name: called.name, args: JSON.parse(called.arguments) },
        ...(has.has('thinking') && { thoughtSignature: marks.data('proof of thinking') }),
      });
    }
    if (parts.length === 0) parts.push({ text: 'Yes.' });
    const end = {
      finishReason: 'STOP',
      ...(has.has('sources') &&
        has.has('text') && {
          groundingMetadata: {
            webSearchQueries: [marks.text('work of tools that the API runs')],
            groundingChunks: [
              { web: { uri: url(marks), title: marks.text('title of a source') } },
              {
                retrievedContext: {
                  title: marks.text('title of a source'),
                  text: marks.text('words of a source'),
                },
              },
            ],
            groundingSupports: [{ segment: { startIndex: 0, endIndex: 4 }, groundingChunkIndices: [0] }],
          },
          citationMetadata: { citationSources: [{ uri: url(marks), startIndex: 1, endIndex: 3 }] },
        }),
      ...(has.has('ratings') && { safetyRatings: [{ category: marks.text('ratings of safety') }] }),
    };
    const usageMetadata = {
      promptTokenCount: many,
      candidatesTokenCount: many,
      ...(has.has('usage') && {
        cachedContentTokenCount: marks.count('cached tokens'),
        thoughtsTokenCount: marks.count('tokens of thinking'),
        promptTokensDetails: [{ modality: 'AUDIO', tokenCount: marks.count('tokens of audio and images') }],
      }),
    };
    const event = (given: readonly Json[], more: object = {}) => ({
      candidates: [{ content: { role: 'model', parts: given }, index: 0, ...more }],
    });
    return {
      whole: { ...event(parts, end), usageMetadata },
      events: dataEvents(...parts.map((part) => event([part])), { ...event([], end), usageMetadata }),
    };
  },
  bedrock(has, marks) {
    const content: Json[] = [];
    const events: (readonly [string, object])[] = [['messageStart', { role: 'assistant' }]];
    const add = (block: object, ...deltas: readonly object[]) => {
      const contentBlockIndex = content.length;
      content.push(block);
      for (const delta of deltas) events.push(['contentBlockDelta', { contentBlockIndex, delta }]);
      events.push(['contentBlockStop', { contentBlockIndex }]);
    };
    if (has.has('thinking')) {
      const [text, signature] = [marks.text('thinking'), marks.data('proof of thinking')];
      add(
        { reasoningContent: { reasoningText: { text, signature } } },
        { reasoningContent: { text } },
        { reasoningContent: { signature } },
      );
    }
    if (has.has('text')) {
      const text = marks.text('text');
      if (!has.has('sources')) add({ text }, { text });
      else {
        const quote = () => [{ text: marks.text('words of a source') }];
        const citations = [
          {
            title: marks.text('title of a source'),
            sourceContent: quote(),
            location: { web: { url: url(marks), domain: 'example.com' } },
          },
          {
            title: marks.text('title of a source'),
            sourceContent: quote(),
            location: {
              documentChar: { documentIndex: 0, start: marks.count('place in a document'), end: 9_000_000 },
            },
          },
        ];
        add(
          { citationsContent: { content: [{ text }], citations } },
          { text },
          ...citations.map((citation) => ({ citation })),
        );
      }
    }
    if (has.has('calls')) {
      const { id, function: called } = chatCall(marks);
      const start = { toolUseId: id, name: called.name };
      events.push(['contentBlockStart', { contentBlockIndex: content.length, start: { toolUse: start } }]);
      add({ toolUse: { ...start, input: JSON.parse(called.arguments) } }, { toolUse: { input: called.arguments } });
    }
    if (content.length === 0) add({ text: 'Yes.' }, { text: 'Yes.' });
    const usage = {
      inputTokens: many,
      outputTokens: many,
      ...(has.has('usage') && {
        cacheReadInputTokens: marks.count('cached tokens'),
        cacheDetails: [{ ttl: '1h', inputTokens: marks.count('tokens written into a cache for an hour') }],
        cacheWriteInputTokens: marks.count('tokens written into a cache'),
      }),
    };
    const stopReason = has.has('calls') ? 'tool_use' : 'end_turn';
    return {
      whole: { output: { message: { role: 'assistant', content } }, stopReason, usage },
      events: namedEvents(...events, ['messageStop', { stopReason }], ['metadata', { usage }]),
    };
  },
  cohere(has, marks) {
    const content: Json[] = [];
    if (has.has('thinking')) content.push({ type: 'thinking', thinking: marks.text('thinking') });
    if (has.has('text')) content.push({ type: 'text', text: marks.text('text') });
    const quote = () => ({ title: marks.text('title of a source'), snippet: marks.text('words of a source') });
    const citations =
      has.has('sources') && has.has('text')
        ? [
            { start: 0, end: 4, text: 'text', sources: [{ type: 'document', id: 'd', document: quote() }] },
            { start: 0, end: 4, sources: [{ type: 'document', id: 'e', document: { url: url(marks) } }] },
          ]
        : [];
    const calls = has.has('calls') ? [chatCall(marks)] : [];
    const finish_reason = calls.length > 0 ? 'TOOL_CALL' : 'COMPLETE';
    const usage = { tokens: { input_tokens: 3, output_tokens: 4 } };
    const event = (type: string, message: object) => ({ type, index: 0, delta: { message } });
    return {
      whole: { id: 'c', message: { role: 'assistant', content, citations, tool_calls: calls }, finish_reason, usage },
      events: dataEvents(
        { type: 'message-start', id: 'c' },
        ...content.map((piece) => event('content-start', { content: piece })),
        ...citations.map((citation) => event('citation-start', { citations: citation })),
        ...calls.map((call) => event('tool-call-start', { tool_calls: call })),
        { type: 'message-end', delta: { finish_reason, usage } },
      ),
    };
  },
};
