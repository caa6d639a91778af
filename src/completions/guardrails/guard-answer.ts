import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatChunk, ChunkDelta } from '../contract/chat.ts';
import { parseEvent } from '../dialects/json-value.ts';
import { createSseFraming } from '../relay/event-splitter.ts';
import type { OpenedChat, OpenedStream, StreamSink } from '../relay/open-stream.ts';
import { type CheckedCall, type Guardrails, textsIn } from './guardrails.ts';
import { mapArguments, mapTexts, type TextScreen } from './text-screen.ts';

type Chunks = readonly ChatChunk[];
type TextField = 'content' | 'reasoning_content' | 'refusal';
type Choice = ChatChunk['choices'][number];
type CallPiece = NonNullable<ChunkDelta['tool_calls']>[number];

const TEXT_FIELDS: readonly TextField[] = ['reasoning_content', 'content', 'refusal'];
/** The longest response that a webhook gets, and the longest that is read for the log, in characters. */
const MAX_WHOLE = 8 * 1024 * 1024;

/** Applies the rails to a response. Throws CONTENT_BLOCKED if a complete response is blocked. */
export async function guardAnswer(rails: Guardrails, opened: OpenedChat, call: CheckedCall): Promise<OpenedChat> {
  switch (opened.kind) {
    case 'completion': {
      const { completion } = opened;
      const choices = await rails.check('response', completion.choices, call);
      if (choices === completion.choices) return opened;
      const proven = choices.map((choice, index) => {
        const { reasoning_signature: _, ...message } = choice.message;
        const before = completion.choices[index]?.message.reasoning_content;
        return choice.message.reasoning_content === before ? choice : { ...choice, message };
      });
      return { ...opened, completion: { ...completion, choices: proven } };
    }
    case 'bytes': {
      // Only operations without a form of ours come as bytes here, and calls whose rails only log.
      const body = parseEvent(opened.body.toString('utf8'));
      const checked = await rails.check('response', body, call);
      return checked === body ? opened : { ...opened, body: Buffer.from(JSON.stringify(checked)) };
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

/** Replaces the texts in chunks by what the screens and `checkArguments` return. */
function createChunkScreen(open: () => TextScreen, checkArguments: (text: string) => string) {
  interface Held {
    /** The field of the current text. */
    field: TextField | undefined;
    readonly screen: TextScreen;
    readonly calls: Map<number, string>;
    /** Reasoning that was changed has no proof any more. */
    isChanged: boolean;
    /** Sources wait for the end of the text that names them. */
    readonly sources: { readonly type: string }[];
  }
  const choices = new Map<number, Held>();
  let callCharacters = 0;
  let head: Omit<ChatChunk, 'choices' | 'usage'> | undefined;

  function heldOf(index: number): Held {
    const known = choices.get(index);
    if (known !== undefined) return known;
    const fresh = { field: undefined, screen: open(), calls: new Map<number, string>(), isChanged: false, sources: [] };
    choices.set(index, fresh);
    return fresh;
  }

  function put(out: ChatChunk[], index: number, delta: ChunkDelta): void {
    if (head !== undefined) out.push({ ...head, choices: [{ index, delta, finish_reason: null }] });
  }

  function send(out: ChatChunk[], index: number, held: Held, text: string): void {
    if (held.field !== undefined && text !== '') put(out, index, { [held.field]: text });
  }

  /** Sends the sources that wait, after checking their texts. */
  function endSources(out: ChatChunk[], index: number, { sources }: Held): void {
    if (sources.length === 0) return;
    put(out, index, { annotations: mapTexts(sources.splice(0), checkArguments) });
  }

  function takeSources(held: Held, given: NonNullable<ChunkDelta['annotations']>): void {
    for (const source of given) held.sources.push(source);
    callCharacters += JSON.stringify(given).length;
    if (callCharacters > MAX_WHOLE) throw tooLong();
  }

  /** Ends the text that is being written. */
  function endText(out: ChatChunk[], index: number, held: Held): void {
    if (held.field === undefined) return;
    send(out, index, held, held.screen.end());
    if (held.field === 'reasoning_content' && held.screen.hasChanged()) held.isChanged = true;
    held.field = undefined;
    endSources(out, index, held);
  }

  /** Sends the calls. They wait until they are complete, because a mask inside partial JSON could break it. */
  function endCalls(out: ChatChunk[], index: number, { calls }: Held): void {
    for (const [place, text] of calls) {
      if (text === '') continue;
      put(out, index, { tool_calls: [{ index: place, function: { arguments: checkArguments(text) } }] });
    }
    calls.clear();
  }

  function takeCalls(held: Held, pieces: readonly CallPiece[]): CallPiece[] {
    return pieces.map((piece, position) => {
      const place = Number.isInteger(piece.index) ? piece.index : position;
      const text = piece.function?.arguments ?? '';
      held.calls.set(place, (held.calls.get(place) ?? '') + text);
      callCharacters += text.length;
      if (callCharacters > MAX_WHOLE) throw tooLong();
      return piece.function === undefined ? piece : { ...piece, function: { ...piece.function, arguments: '' } };
    });
  }

  function read(out: ChatChunk[], { index, delta, finish_reason: reason, ...others }: Choice): void {
    const held = heldOf(index);
    const rest: ChunkDelta = { ...delta };
    for (const field of TEXT_FIELDS) {
      const text = delta[field];
      if (typeof text !== 'string') continue;
      // An empty text says that an answer begins: it is passed on.
      if (text === '') continue;
      delete rest[field];
      if (held.field !== field) endText(out, index, held);
      held.field = field;
      send(out, index, held, held.screen.feed(text));
    }
    if (rest.reasoning_signature !== undefined) {
      endText(out, index, held);
      if (held.isChanged) delete rest.reasoning_signature;
    }
    if (rest.tool_calls !== undefined) {
      endText(out, index, held);
      rest.tool_calls = takeCalls(held, rest.tool_calls);
    }
    if (Array.isArray(rest.annotations)) takeSources(held, rest.annotations);
    delete rest.annotations;
    const isEnd = typeof reason === 'string' && reason !== '';
    if (isEnd) {
      endText(out, index, held);
      endSources(out, index, held);
      endCalls(out, index, held);
    }
    if (head !== undefined && (isEnd || Object.keys(rest).length > 0)) {
      out.push({ ...head, choices: [{ ...others, index, delta: rest, finish_reason: reason }] });
    }
  }

  return {
    read(chunks: Chunks): Chunks {
      const out: ChatChunk[] = [];
      for (const { choices: given, usage, ...others } of chunks) {
        head = others;
        for (const choice of given) read(out, choice);
        if (usage !== undefined) out.push({ ...others, choices: [], usage });
      }
      return out;
    },
    /** What is held of a response that came to no proper end. */
    end(): Chunks {
      const out: ChatChunk[] = [];
      for (const [index, held] of choices) {
        endText(out, index, held);
        endSources(out, index, held);
        endCalls(out, index, held);
      }
      return out;
    },
  };
}

/** Relays a stream through the rails, with a delay of 200 characters. */
function screenedStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  const { open, done } = rails.screen(call);
  const ofCalls = open();
  const whole = (text: string) => ofCalls.feed(text) + ofCalls.end();
  const screen = createChunkScreen(open, (text) => mapArguments(text, whole));

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

function tooLong(): AppError {
  return new AppError('CONTENT_BLOCKED', { guardrail: 'limit of length' });
}

function writeSome(sink: StreamSink<Chunks>, chunks: Chunks): boolean {
  return chunks.length === 0 || sink.write(chunks);
}

/** Collects a complete stream, checks it, and then sends it. */
function wholeStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  function attach(sink: StreamSink<Chunks>): void {
    const all: ChatChunk[] = [];
    let length = 0;
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
      all.push(...chunks);
      for (const chunk of chunks) for (const text of textsIn(chunk.choices)) length += text.length;
      if (length > MAX_WHOLE) fail(tooLong());
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
  const screen = createChunkScreen(open, (text) => mapArguments(text, take));
  return [...screen.read(chunks), ...screen.end()];
}

/** Relays a stream unchanged, and checks its texts at the end for the rails that only log. */
function loggedStream(rails: Guardrails, stream: OpenedStream<Chunks>, call: CheckedCall): OpenedStream<Chunks> {
  const texts: string[] = [];
  const reader = createCollector(texts);
  return tapped(stream, reader.read, () => {
    reader.end();
    rails.observe('response', texts, call);
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
  return createChunkScreen(open, (text) => {
    texts.push(text);
    return text;
  });
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

/** Relays a stream unchanged, and calls `see` with each piece. */
function tapped<Piece>(
  stream: OpenedStream<Piece>,
  see: (piece: Piece) => unknown,
  onEnd: () => void,
): OpenedStream<Piece> {
  return {
    ...stream,
    attach: (sink) =>
      stream.attach({
        write(piece) {
          see(piece);
          return sink.write(piece);
        },
        end(last) {
          if (last !== undefined) see(last);
          onEnd();
          sink.end(last);
        },
        fail(error) {
          onEnd();
          sink.fail(error);
        },
      }),
  };
}
