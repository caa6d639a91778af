import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

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
      response.write(event(count < THOUGHTS ? THOUGHT : WORD, null));
      await sleep(pauseMs);
    }
    response.end(`${event({ content: 'Done.' }, null)}${event({}, 'stop')}data: [DONE]\n\n`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function event(delta: object, finish: string | null): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices })}\n\n`;
}
