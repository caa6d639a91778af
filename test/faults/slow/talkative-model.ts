import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { deltaEvent } from '../../kit/chat-chunk.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';

/**
 * Whoever follows a turn gets nearly ten megabytes: an update carries its text several times. That is more than the buffers
 * of the system (about four) and of the program (four) take together.
 */
const THOUGHTS = 16;
const THOUGHT = { reasoning_content: 'w'.repeat(60_000) };
const WORDS = 24;
const WORD = { content: 'w'.repeat(30_000) };

/** The prompt that makes it talk; to others the answer is a word. */
export const TALK = 'talk';

/** A model that thinks and speaks at length, at a steady pace. */
export async function startTalkativeModel(pauseMs: number) {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    response.on('error', () => undefined);
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const { messages } = JSON.parse(text) as { messages: { content: unknown }[] };
    const pieces = messages.at(-1)?.content === TALK ? THOUGHTS + WORDS : 0;
    for (let count = 0; count < pieces && !response.destroyed; count += 1) {
      response.write(deltaEvent(count < THOUGHTS ? THOUGHT : WORD, null));
      await sleep(pauseMs);
    }
    response.end(`${deltaEvent({ content: 'Done.' }, null)}${deltaEvent({}, 'stop')}data: [DONE]\n\n`);
  });
  const { url, close } = await listenOnLoopback(server);
  return { url: `${url}/v1`, close };
}
