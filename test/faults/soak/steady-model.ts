import { createServer } from 'node:http';
import { chunkEvent, deltaEvent } from '../../kit/chat-chunk.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';

/** A model API in a process of its own: answers at once, whole or as a stream, or refuses when it is told to. */
const WORDS = 50;
const USAGE = { prompt_tokens: 10, completion_tokens: WORDS, total_tokens: 10 + WORDS };
const text = 'word '.repeat(WORDS);
const choices = [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }];
const whole = JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model: 'm', choices, usage: USAGE });

const server = createServer(async (request, response) => {
  if (request.method === 'GET') {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"object":"list","data":[{"id":"m"}]}');
    return;
  }
  let body = '';
  for await (const piece of request) body += piece;
  const { stream, messages } = JSON.parse(body) as { stream?: boolean; messages: { content: string }[] };
  const task = messages.at(-1)?.content;
  if (task === 'refused') {
    response.writeHead(400, { 'content-type': 'application/json' }).end('{"error":{"message":"no such thing"}}');
  } else if (stream === true) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let count = 0; count < WORDS; count += 1) response.write(deltaEvent({ content: 'word ' }));
    // One that its client leaves in the middle.
    if (task === 'hang') return;
    response.end(`${deltaEvent({}, 'stop')}${chunkEvent([], { usage: USAGE })}data: [DONE]\n\n`);
  } else {
    response.writeHead(200, { 'content-type': 'application/json' }).end(whole);
  }
});
server.keepAliveTimeout = 60_000;
const { url } = await listenOnLoopback(server);
process.on('disconnect', () => process.exit());
process.send?.(url);
