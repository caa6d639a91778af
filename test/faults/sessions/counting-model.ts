import { createServer, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { deltaEvent } from '../../kit/chat-chunk.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';

export interface CountingModel {
  /** Base URL of OpenAI's dialect. */
  readonly url: string;
  close(): Promise<void>;
}

const MIN_WORDS = 5;
const MAX_WORDS = 60;
const MAX_PAUSE_MS = 8;

/** A model that speaks in words, some slowly, and tells of every prompt it gets. */
export async function startCountingModel(
  asked: (prompt: string) => void,
  random: () => number,
): Promise<CountingModel> {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    const { messages } = JSON.parse(text) as { messages: { role: string; content: unknown }[] };
    asked(String(messages.findLast(({ role }) => role === 'user')?.content));
    await speak(response, random);
  });
  const { url, close } = await listenOnLoopback(server);
  return { url: `${url}/v1`, close };
}

async function speak(response: ServerResponse, random: () => number): Promise<void> {
  response.on('error', () => undefined);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const words = MIN_WORDS + Math.floor(random() * (MAX_WORDS - MIN_WORDS));
  const pauseMs = random() * MAX_PAUSE_MS;
  for (let word = 0; word < words && !response.destroyed; word += 1) {
    response.write(deltaEvent({ content: `word ${word} ` }, null));
    await sleep(pauseMs);
  }
  response.end(`${deltaEvent({}, 'stop')}data: [DONE]\n\n`);
}
