import { createServer, type ServerResponse } from 'node:http';
import { chunkEvent, deltaEvent } from '../kit/chat-chunk.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';
import { wordOf } from './numbered-words.ts';

/** A model API in a process of its own: says as many words as it is asked for, each stream twenty of them a second. */
const WORD_MS = 50;
/** Not all at the same moment: in so many parts of that time. */
const PARTS = 25;

interface Speaking {
  readonly response: ServerResponse;
  readonly words: number;
  said: number;
}

const parts: Set<Speaking>[] = Array.from({ length: PARTS }, () => new Set());
let turn = 0;
let begun = 0;

const events: Buffer[] = [];

/** The same words for all streams: made once, for the machine has better to do. */
function eventOf(index: number): Buffer {
  events[index] ??= Buffer.from(deltaEvent({ content: wordOf(index) }));
  return events[index];
}

function speak(part: Set<Speaking>, stream: Speaking): void {
  const { response, words } = stream;
  if (response.destroyed) part.delete(stream);
  else if (stream.said < words) {
    response.write(eventOf(stream.said));
    stream.said += 1;
  } else {
    part.delete(stream);
    const usage = { prompt_tokens: 1, completion_tokens: words, total_tokens: words + 1 };
    response.end(`${deltaEvent({}, 'stop')}${chunkEvent([], { usage })}data: [DONE]\n\n`);
  }
}

setInterval(() => {
  turn = (turn + 1) % PARTS;
  const part = parts[turn];
  if (part !== undefined) for (const stream of part) speak(part, stream);
}, WORD_MS / PARTS);

const server = createServer(async (request, response) => {
  let text = '';
  for await (const piece of request) text += piece;
  const { messages } = JSON.parse(text) as { messages: { content: string }[] };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  begun += 1;
  const part = parts[begun % PARTS];
  const stream: Speaking = { response, words: Number(messages.at(-1)?.content), said: 0 };
  if (part === undefined) return;
  part.add(stream);
  speak(part, stream);
});
// Connections wait between two streams.
server.keepAliveTimeout = 60_000;
const { url } = await listenOnLoopback(server);
process.on('disconnect', () => process.exit());
process.send?.(url);
