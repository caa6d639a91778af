import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { chunkEvent } from '../../kit/chat-chunk.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import type { CallPrice } from './check-operations.ts';

/** No more than what is reserved for a call before it begins, so that a budget can be kept exactly. */
const USAGE = { prompt_tokens: 5, completion_tokens: 5, total_tokens: 10 };
export const PRICES = { 'lab/small': { input: 0.001, output: 0.002 } };
export const MAX_TOKENS = USAGE.completion_tokens;
export const CALL_PRICE: CallPrice = {
  tokens: USAGE.total_tokens,
  costUsd: USAGE.prompt_tokens * PRICES['lab/small'].input + USAGE.completion_tokens * PRICES['lab/small'].output,
};

const MAX_PAUSE_MS = 40;

/** A model API that tells of every call it has answered; the call's id is what the user says. */
export async function startCountingUpstream(answered: (id: string) => void, random: () => number) {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    response.on('error', () => undefined);
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    const { messages, stream } = JSON.parse(text) as { messages: { content: string }[]; stream?: boolean };
    response.on('finish', () => answered(String(messages.at(-1)?.content)));
    const pauseMs = random() * MAX_PAUSE_MS;
    if (stream !== true) {
      await sleep(pauseMs);
      response.setHeader('content-type', 'application/json');
      const choices = [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }];
      response.end(
        JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model: 'm', choices, usage: USAGE }),
      );
      return;
    }
    response.setHeader('content-type', 'text/event-stream');
    response.write(chunkEvent([{ index: 0, delta: { role: 'assistant', content: 'Yes.' }, finish_reason: null }]));
    await sleep(pauseMs);
    response.write(chunkEvent([{ index: 0, delta: {}, finish_reason: 'stop' }]));
    response.end(`${chunkEvent([], { usage: USAGE })}data: [DONE]\n\n`);
  });
  const { url, close } = await listenOnLoopback(server);
  return { url: `${url}/v1`, close };
}
