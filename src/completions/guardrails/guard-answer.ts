import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatChunk } from '../contract/chat.ts';
import { asObject, parseEvent } from '../dialects/json-value.ts';
import { createSseFraming } from '../relay/event-splitter.ts';
import type { OpenedChat, OpenedStream, StreamSink } from '../relay/open-stream.ts';
import { mapTexts } from './find-content.ts';
import { type CheckedCall, type Guardrails, textsIn } from './guardrails.ts';
import { createChunkScreen, MAX_WHOLE, otherMembers, type TextScreen, tooLong } from './text-screen.ts';

type Chunks = readonly ChatChunk[];

/** Applies the rails to a response. Throws CONTENT_BLOCKED if a complete response is blocked. */
export async function guardAnswer(rails: Guardrails, opened: OpenedChat, call: CheckedCall): Promise<OpenedChat> {
  switch (opened.kind) {
    case 'completion': {
      const { completion } = opened;
      const given = { choices: completion.choices, ...otherMembers(completion) };
      const checked = await rails.check('response', given, call);
      if (checked === given) return opened;
      const choices = checked.choices.map((choice, index) => {
        const before = completion.choices[index];
        if (choice === before) return choice;
        const { reasoning_signature: proof, ...message } = choice.message;
        const isProven = proof !== undefined && message.reasoning_content === before?.message.reasoning_content;
        return { ...withoutTokens(choice), message: isProven ? choice.message : message };
      });
      return { ...opened, completion: { ...completion, ...checked, choices } };
    }
    case 'bytes': {
      // Only operations without a form of ours come as bytes here, and calls whose rails only log.
      const body = parseEvent(opened.body.toString('utf8'));
      const checked = await rails.check('response', body, call);
      return checked === body ? opened : { ...opened, body: Buffer.from(JSON.stringify(withoutTokens(checked))) };
    }
    case 'chunk-stream': {
      if (rails.needsWholeResponses) return { ...opened, stream: wholeStream(rails, opened.stream, call) };
      const logged = rails.logsResponses ? loggedStream(rails, opened.stream, call) : opened.stream;
      return { ...opened, stream: rails.changesResponses ? screenedStream(rails, logged, call) : logged };
    }
    case 'byte-stream':
      return rails.logsResponses ? { ...opened, stream: loggedBytes(rails, opened.stream, call) } : opened;
  }
}

/** Relays a stream through the rails, with a delay of 200 characters. */
function screenedStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  const { open, done } = rails.screen(call);
  const ofCalls = open();
  const whole = (text: string) => ofCalls.feed(text) + ofCalls.end();
  const screen = createChunkScreen(open, whole);

  function attach(sink: StreamSink<Chunks>): void {
    let over = false;
    /** Runs a step; ends both sides where a rail blocks. */
    const guarded = <Result>(step: () => Result, otherwise: Result): Result => {
      if (over) return otherwise;
      try {
        return step();
      } catch (error) {
        over = true;
        done();
        stream.abort();
        sink.fail(
          error instanceof AppError ? error : new AppError('CONTENT_BLOCKED', { guardrail: '' }, { cause: error }),
        );
        return otherwise;
      }
    };
    stream.attach({
      write: (chunks) => guarded(() => writeSome(sink, screen.read(chunks)), true),
      end: (last = []) =>
        guarded(() => {
          const rest = [...screen.read(last), ...screen.end()];
          over = true;
          done();
          sink.end(rest);
        }, undefined),
      fail: (error) =>
        guarded(() => {
          writeSome(sink, screen.end());
          over = true;
          done();
          sink.fail(error);
        }, undefined),
    });
  }
  return { ...stream, attach };
}

function writeSome(sink: StreamSink<Chunks>, chunks: Chunks): boolean {
  return chunks.length === 0 || sink.write(chunks);
}

/** Collects a complete stream, checks it, and then sends it. */
function wholeStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  function attach(sink: StreamSink<Chunks>): void {
    const all: ChatChunk[] = [];
    let length = 0;
    let held = 0;
    let over = false;

    function fail(error: unknown): void {
      if (over) return;
      over = true;
      stream.abort();
      sink.fail(
        error instanceof AppError ? error : new AppError('CONTENT_BLOCKED', { guardrail: '' }, { cause: error }),
      );
    }

    async function finish(): Promise<void> {
      const texts: string[] = [];
      const collected = rewritten(all, (text) => {
        texts.push(text);
        return text;
      });
      const checked = await rails.checkTexts('response', texts, call);
      let place = 0;
      const isSame = checked.every((text, index) => text === texts[index]);
      const chunks = isSame ? collected : rewritten(all, (text) => checked[place++] ?? text);
      if (over) return;
      over = true;
      sink.end(chunks);
    }

    function take(chunks: Chunks): void {
      try {
        all.push(...chunks);
        for (const chunk of chunks) {
          for (const text of textsIn(chunk.choices)) length += text.length;
          held += CHUNK_CHARACTERS + charactersIn(chunk);
        }
        if (length > MAX_WHOLE || held > MAX_HELD) throw tooLong();
      } catch (error) {
        fail(error);
      }
    }

    stream.attach({
      write(chunks) {
        if (!over) take(chunks);
        return true;
      },
      end(last = []) {
        if (!over) take(last);
        if (!over) finish().catch(fail);
      },
      fail,
    });
  }
  return { ...stream, attach };
}

/** What a stream that is collected may hold: a whole response may be as large. Images and proofs are not checked, but they take memory. */
const MAX_HELD = 32 * 1024 * 1024;
/** What a chunk takes besides its strings, roughly. */
const CHUNK_CHARACTERS = 100;

/** Counts the characters of all strings in a value, at any depth. */
function charactersIn(value: unknown): number {
  let characters = 0;
  const waiting: unknown[] = [value];
  while (waiting.length > 0) {
    const each = waiting.pop();
    if (typeof each === 'string') characters += each.length;
    else if (typeof each === 'object' && each !== null) for (const member of Object.values(each)) waiting.push(member);
  }
  return characters;
}

/** The chunks with each text as one piece, as `take` returns it. */
function rewritten(chunks: Chunks, take: (text: string) => string): Chunks {
  const open = (): TextScreen => {
    let text = '';
    let isChanged = false;
    return {
      feed(piece) {
        text += piece;
        return '';
      },
      end() {
        const taken = text === '' ? '' : take(text);
        isChanged = taken !== text;
        text = '';
        return taken;
      },
      hasChanged: () => isChanged,
    };
  };
  const screen = createChunkScreen(open, take);
  return [...screen.read(chunks), ...screen.end()];
}

/** Relays a stream unchanged, and checks its texts at the end for the rails that only log. */
function loggedStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  const texts: string[] = [];
  const reader = createCollector(texts);
  return tapped(stream, reader.read, () => {
    try {
      reader.end();
    } finally {
      rails.observe('response', texts, call);
    }
  });
}

function createCollector(texts: string[]) {
  let length = 0;
  const open = (): TextScreen => {
    let text = '';
    return {
      feed(piece) {
        if (length < MAX_WHOLE) text += piece;
        length += piece.length;
        return '';
      },
      end() {
        if (text !== '') texts.push(text);
        text = '';
        return '';
      },
      hasChanged: () => false,
    };
  };
  const note = (text: string): string => {
    if (length < MAX_WHOLE) texts.push(text);
    return text;
  };
  return createChunkScreen(open, note, (value) => mapTexts(value, note));
}

/** The same for a stream of bytes: texts of events that follow each other are joined where they have the same name. */
function loggedBytes(rails: Guardrails, stream: OpenedStream<Buffer>, call: CheckedCall): OpenedStream<Buffer> {
  const framing = createSseFraming();
  let text = '';
  return tapped(
    stream,
    (piece) => {
      if (text.length > MAX_WHOLE) return;
      for (const { data } of framing.feed(piece)) {
        const body = parseEvent(data);
        if (body !== undefined) text += textsIn(body).join('');
      }
    },
    () => rails.observe('response', [text], call),
  );
}

/**
 * Relays a stream unchanged, and calls `see` with each piece. What cannot be seen, such as calls that are too long or nested too
 * deeply, is relayed anyway: an error here would be one of the whole program.
 */
function tapped<Piece>(
  stream: OpenedStream<Piece>,
  see: (piece: Piece) => unknown,
  onEnd: () => void,
): OpenedStream<Piece> {
  let isBlind = false;
  const look = (piece: Piece): void => {
    if (isBlind) return;
    try {
      see(piece);
    } catch {
      isBlind = true;
    }
  };
  const finish = (): void => {
    try {
      onEnd();
    } catch {
      isBlind = true;
    }
  };
  return {
    ...stream,
    attach: (sink) =>
      stream.attach({
        write(piece) {
          look(piece);
          return sink.write(piece);
        },
        end(last) {
          if (last !== undefined) look(last);
          finish();
          sink.end(last);
        },
        fail(error) {
          finish();
          sink.fail(error);
        },
      }),
  };
}

/** Members that repeat a text piece by piece: token by token, or word by word. */
const PIECEWISE: ReadonlySet<string> = new Set(['logprobs', 'words', 'tokens']);

/** Removes what repeats a text piece by piece. What was masked in the text could be read there. */
function withoutTokens<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(withoutTokens) as Value;
  const given = asObject(value);
  if (given === undefined) return value;
  const kept = Object.entries(given).filter(([name, member]) => !PIECEWISE.has(name) || typeof member !== 'object');
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutTokens(member)])) as Value;
}
