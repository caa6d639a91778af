import type { ModelDialect } from './scripted-model.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies of foreign programs, read as they come
type Json = any;

const USAGE = { input_tokens: 11, output_tokens: 7 };

/** Anthropic's Messages API. */
export const messages: ModelDialect = {
  serves: (path) => path.endsWith('/messages'),
  read: (_path, body) => {
    const said: readonly Json[] = body.messages ?? [];
    const parts = said.map(({ role, content }) => ({
      role,
      parts: typeof content === 'string' ? [{ type: 'text', text: content }] : (content as readonly Json[]),
    }));
    const spoke = parts.map(({ role, parts: all }) => role === 'user' && all.some(({ type }) => type === 'text'));
    const results = (from: number) =>
      parts.slice(from).flatMap(({ parts: all }) => all.filter(({ type }) => type === 'tool_result'));
    const asked = parts.findLastIndex(({ role }) => role === 'assistant') + 1;
    return {
      model: body.model,
      userTexts: parts.filter((_, index) => spoke[index]).map(({ parts: all }) => textOf(all)),
      toolResults: results(asked).map(({ content }) => (typeof content === 'string' ? content : textOf(content ?? []))),
      toolNames: (body.tools ?? []).map((tool: Json) => tool.name ?? ''),
      images: parts.slice(asked).flatMap(({ parts: all }) => all.filter(({ type }) => type === 'image')).length,
      streamed: body.stream === true,
    };
  },
  whole: ({ model }, reply) => ({
    ...head(model),
    content: blocksOf(reply).map(({ block }) => block),
    stop_reason: reply.toolCall === undefined ? 'end_turn' : 'tool_use',
  }),
  stream: ({ model }, reply) => ({
    before: [
      event('message_start', { message: { ...head(model), content: [], stop_reason: null } }),
      ...blocksOf(reply).flatMap(({ start, deltas }, index) => [
        event('content_block_start', { index, content_block: start }),
        ...deltas.map((delta) => event('content_block_delta', { index, delta })),
        event('content_block_stop', { index }),
      ]),
    ],
    after: [
      event('message_delta', {
        delta: { stop_reason: reply.toolCall === undefined ? 'end_turn' : 'tool_use', stop_sequence: null },
        usage: USAGE,
      }),
      event('message_stop', {}),
    ],
  }),
};

function head(model: string): object {
  return { id: 'msg_1', type: 'message', role: 'assistant', model, stop_sequence: null, usage: USAGE };
}

function blocksOf({ thinking, text = [], toolCall }: Parameters<ModelDialect['whole']>[1]) {
  const blocks: { readonly block: object; readonly start: object; readonly deltas: readonly object[] }[] = [];
  if (thinking !== undefined) {
    const signature = Buffer.from(thinking).toString('base64');
    blocks.push({
      block: { type: 'thinking', thinking, signature },
      start: { type: 'thinking', thinking: '', signature: '' },
      deltas: [
        { type: 'thinking_delta', thinking },
        { type: 'signature_delta', signature },
      ],
    });
  }
  if (text.length > 0) {
    const deltas = text.map((piece) => ({ type: 'text_delta', text: piece }));
    blocks.push({ block: { type: 'text', text: text.join('') }, start: { type: 'text', text: '' }, deltas });
  }
  if (toolCall !== undefined) {
    const { name, arguments: input } = toolCall;
    const call = { type: 'tool_use', id: 'toolu_1', name };
    const deltas = [{ type: 'input_json_delta', partial_json: JSON.stringify(input) }];
    blocks.push({ block: { ...call, input }, start: { ...call, input: {} }, deltas });
  }
  return blocks;
}

function textOf(parts: readonly Json[]): string {
  return parts.map(({ text }) => text ?? '').join('');
}

function event(type: string, body: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...body })}\n\n`;
}
