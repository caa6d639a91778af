import { createParser } from 'eventsource-parser';
import { MAX_MESSAGE_CHARACTERS } from './rpc-message.ts';
import { clientError, connectionLost } from './trestle-error.ts';

/** The text of a body as it comes. To stop reading breaks off the connection, and so does silence. */
async function* readText(response: Response, silenceMs: number): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await orSilence(reader.read(), silenceMs);
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

async function orSilence<Value>(value: Promise<Value>, silenceMs: number): Promise<Value> {
  const silence = Promise.withResolvers<never>();
  const timer = setTimeout(() => silence.reject(new Error(`nothing came for ${silenceMs} ms`)), silenceMs);
  try {
    return await Promise.race([value, silence.promise]);
  } catch (cause) {
    throw connectionLost(cause instanceof Error ? cause.message : 'the connection broke', { cause });
  } finally {
    clearTimeout(timer);
  }
}

/** A document as a whole. */
export async function readDocument(response: Response, silenceMs: number): Promise<string> {
  const parts: string[] = [];
  let length = 0;
  for await (const part of readText(response, silenceMs)) {
    length += part.length;
    if (length > MAX_MESSAGE_CHARACTERS) throw tooLarge();
    parts.push(part);
  }
  return parts.join('');
}

/** The data of each event of a `text/event-stream`; comments only show that the connection lives. */
export async function* readEvents(response: Response, silenceMs: number): AsyncGenerator<string> {
  let arrived: string[] = [];
  let isTooLarge = false;
  const parser = createParser({
    maxBufferSize: MAX_MESSAGE_CHARACTERS,
    onEvent: ({ data }) => arrived.push(data),
    onError({ type }) {
      if (type === 'max-buffer-size-exceeded') isTooLarge = true;
    },
  });
  for await (const part of readText(response, silenceMs)) {
    parser.feed(part);
    if (isTooLarge) throw tooLarge();
    const events = arrived;
    arrived = [];
    yield* events;
  }
}

function tooLarge(): Error {
  return clientError('BAD_ANSWER', `An answer may have ${MAX_MESSAGE_CHARACTERS} characters at most.`);
}
