import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A model API in a process of its own: answers at once, whole or as a stream, and keeps some streams open for ever. */
const CHUNKS = 200;
const USAGE = { prompt_tokens: 20, completion_tokens: CHUNKS, total_tokens: 20 + CHUNKS };
const HEAD = { id: 'chatcmpl-bench', created: 1_700_000_000, model: 'bench' };
const WHOLE = Buffer.from(
  JSON.stringify({
    ...HEAD,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'An answer of usual length. '.repeat(20) },
        finish_reason: 'stop',
      },
    ],
    usage: USAGE,
  }),
);

const chunk = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ ...HEAD, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const openaiEvents = [
  chunk({ role: 'assistant', content: '' }),
  ...Array.from({ length: CHUNKS }, (_, index) => chunk({ content: ` word${index}` })),
  chunk({}, 'stop'),
  `data: ${JSON.stringify({ ...HEAD, object: 'chat.completion.chunk', choices: [], usage: USAGE })}\n\n`,
  'data: [DONE]\n\n',
].map((text) => Buffer.from(text));

const event = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const anthropicEvents = [
  event('message_start', {
    message: {
      id: 'msg_bench',
      model: 'bench',
      role: 'assistant',
      content: [],
      usage: { input_tokens: 20, output_tokens: 1 },
    },
  }),
  event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
  ...Array.from({ length: CHUNKS }, (_, index) =>
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: ` word${index}` } }),
  ),
  event('content_block_stop', { index: 0 }),
  event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: CHUNKS } }),
  event('message_stop', {}),
].map((text) => Buffer.from(text));

const STREAM = Buffer.from('"stream":true');
const HANGING = Buffer.from('hang');

const server = createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  if (!body.includes(STREAM)) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': WHOLE.length });
    response.end(WHOLE);
    return;
  }
  const events = request.url?.endsWith('/messages') === true ? anthropicEvents : openaiEvents;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  if (body.includes(HANGING)) {
    for (const each of events.slice(0, 5)) response.write(each);
    return;
  }
  for (const each of events) response.write(each);
  response.end();
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
process.on('disconnect', () => process.exit());
