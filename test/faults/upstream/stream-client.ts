import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import type { StreamSeen } from './check-operations.ts';
import type { Script } from './faulty-upstream.ts';

/** A stream that has been asked for, on a connection of its own. */
export function askForStream(url: string, model: string, script: Script): ClientRequest {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: JSON.stringify(script) }] });
  const asked = request(`${url}/v1/chat/completions`, {
    method: 'POST',
    agent: false,
    headers: {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      'x-request-id': script.id,
    },
  });
  asked.on('error', () => undefined);
  asked.end(body);
  return asked;
}

/** Never rejects: whatever ends a request closes it. */
export function whenClosed(asked: ClientRequest): Promise<void> {
  return new Promise((resolve) => asked.once('close', resolve));
}

/** Reads a stream to its end, whatever that is; for so long at most. */
export async function readStream(asked: ClientRequest, id: string, limitMs: number): Promise<StreamSeen> {
  let response: IncomingMessage | undefined;
  let body = '';
  let gaveUp = false;
  const closed = whenClosed(asked);
  asked.on('response', (given) => {
    response = given;
    given.on('error', () => undefined);
    given.setEncoding('utf8').on('data', (piece: string) => {
      body += piece;
    });
  });
  const timer = setTimeout(() => {
    gaveUp = true;
    asked.destroy();
  }, limitMs);
  await closed;
  clearTimeout(timer);
  const at = performance.now();
  const status = response?.statusCode ?? 0;
  const end = gaveUp ? 'none' : response?.complete === true ? 'end' : 'broken';
  const read = readEvents(body);
  const outcome = read.isDone ? 'ok' : read.errors > 0 || status >= 400 ? 'fail' : 'unknown';
  return { kind: 'stream', id, outcome, status, end, ...read, at };
}

function readEvents(body: string): Pick<StreamSeen, 'isDone' | 'errors' | 'text'> {
  const events = body.split('\n\n').flatMap((event) => (event.startsWith('data: ') ? [event.slice(6)] : []));
  const chunks = events.filter((event) => event !== '[DONE]').map(parse);
  return {
    isDone: events.includes('[DONE]'),
    errors: chunks.filter(({ error }) => error !== undefined).length,
    text: chunks.map(({ choices }) => choices?.[0]?.delta?.content ?? '').join(''),
  };
}

interface Chunk {
  readonly error?: object;
  readonly choices?: readonly { readonly delta?: { readonly content?: string } }[];
}

/** What is no JSON counts as text that was never sent. */
function parse(event: string): Chunk {
  try {
    return JSON.parse(event);
  } catch {
    return { choices: [{ delta: { content: `not JSON: ${event}` } }] };
  }
}
