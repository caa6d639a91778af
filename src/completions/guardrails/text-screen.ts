import { AppError } from '../../platform/errors/app-error.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { ChatChunk, ChunkDelta } from '../contract/chat.ts';
import { asObject, asText } from '../dialects/json-value.ts';
import { type FindContent, type Found, mapArguments, mapTexts } from './find-content.ts';

/** A rail that checks texts in this program. */
export interface LocalRail {
  readonly name: string;
  readonly action: 'block' | 'mask' | 'log';
  readonly find: FindContent;
}

/** Reads one text in pieces, and returns it with the masks of the rails. */
export interface TextScreen {
  /** Returns the text that can be sent now. Throws CONTENT_BLOCKED. */
  feed(piece: string): string;
  /** Returns the rest. The screen can then read another text. */
  end(): string;
  /** Whether something was masked since the screen was made. */
  hasChanged(): boolean;
}

/** How many characters are held back, because a match may still be incomplete. */
export const HELD_CHARACTERS = 200;
/** How many characters that were already sent are kept, because patterns may look behind. */
const CONTEXT_CHARACTERS = 64;
/** The longest match. A longer one blocks the call. */
const MAX_HELD = 64 * 1024;
/** A whole text is read in slices, so that a pattern takes bounded time in each. */
const SLICE = 2000;
const SLICES_PER_TURN = 100;

/** `onFound`: hears what each rail has found, once for each place. */
export function createTextScreen(rails: readonly LocalRail[], onFound: (rail: LocalRail) => void): TextScreen {
  let context = '';
  let held = '';
  let isChanged = false;

  /** Returns the text that no later piece can change; at the end, all of it. */
  function release(isEnd: boolean): string {
    const text = context + held;
    const from = context.length;
    const found: (Found & { readonly rail: LocalRail })[] = [];
    for (const rail of rails) {
      for (const each of rail.find(text)) {
        // Skips matches that begin in the context, because they were handled before.
        if (each.start >= from) found.push({ ...each, rail });
      }
    }
    found.sort((a, b) => a.start - b.start || b.end - a.end);
    const cut = isEnd ? text.length : cutOf(text, found);
    const released = replaceFound(text, from, cut, found);
    context = text.slice(Math.max(0, cut - CONTEXT_CHARACTERS), cut);
    held = text.slice(cut);
    if (held.length > MAX_HELD) throw new AppError('CONTENT_BLOCKED', { guardrail: found.at(-1)?.rail.name ?? '' });
    return released;
  }

  function replaceFound(
    text: string,
    from: number,
    cut: number,
    found: readonly (Found & { readonly rail: LocalRail })[],
  ): string {
    let released = '';
    let at = from;
    for (const { start, end, replacement, rail } of found) {
      if (start >= cut) break;
      onFound(rail);
      if (rail.action === 'block') throw new AppError('CONTENT_BLOCKED', { guardrail: rail.name });
      if (rail.action === 'log' || end <= at) continue;
      isChanged = true;
      // Where two overlap, one mask stands for both.
      if (start >= at) released += text.slice(at, start) + replacement;
      at = end;
    }
    return at >= cut ? released : released + text.slice(at, cut);
  }

  return {
    feed(piece) {
      held += piece;
      return held.length > HELD_CHARACTERS ? release(false) : '';
    },
    end() {
      const rest = held === '' ? '' : release(true);
      context = '';
      held = '';
      return rest;
    },
    hasChanged: () => isChanged,
  };
}

/** Returns where to cut the text: not inside a match, and not between the halves of a surrogate pair. */
function cutOf(text: string, found: readonly Found[]): number {
  let cut = Math.max(0, text.length - HELD_CHARACTERS);
  for (const { start, end } of found.toReversed()) if (start < cut && end > cut) cut = start;
  const code = text.charCodeAt(cut - 1);
  return code >= 0xd8_00 && code <= 0xdb_ff ? cut - 1 : cut;
}

/** Checks one complete text. Yields to other requests if it is long. */
export async function screenText(screen: TextScreen, text: string): Promise<string> {
  let result = '';
  for (let at = 0, slices = 1; at < text.length; at += SLICE, slices += 1) {
    result += screen.feed(text.slice(at, at + SLICE));
    if (slices % SLICES_PER_TURN === 0) await afterOthers();
  }
  return result + screen.end();
}

/** The members of an answer, or of a chunk, that have no words in them, besides its choices and its usage. */
const WORDLESS = ['id', 'object', 'created', 'model', 'system_fingerprint', 'service_tier'] as const;
const KNOWN: ReadonlySet<string> = new Set([...WORDLESS, 'choices', 'usage']);

/** Returns the head of a chunk. What else stands beside its choices may have words, such as lists of pages. */
export function knownMembers<Chunk extends object>(chunk: Chunk): Omit<Chunk, 'choices' | 'usage'> {
  const given = chunk as Readonly<Record<string, unknown>>;
  const head: Record<string, unknown> = {};
  for (const name of WORDLESS) if (given[name] !== undefined) head[name] = given[name];
  return head as Omit<Chunk, 'choices' | 'usage'>;
}

/** Returns everything that is not in the head of an answer, and neither choices nor usage. */
export function otherMembers(answer: object): object {
  return Object.fromEntries(Object.entries(answer).filter(([name]) => !KNOWN.has(name)));
}

type Chunks = readonly ChatChunk[];
type TextField = 'content' | 'reasoning_content' | 'refusal';
type Choice = ChatChunk['choices'][number];
type CallPiece = NonNullable<ChunkDelta['tool_calls']>[number];
type FunctionCall = NonNullable<ChunkDelta['function_call']>;

const TEXT_FIELDS: readonly TextField[] = ['reasoning_content', 'content', 'refusal'];
/** The longest response that a webhook gets, and the longest that is read for the log, in characters. */
export const MAX_WHOLE = 8 * 1024 * 1024;

/** Members of a delta that are checked, or have no words. Others (speech, details of reasoning) are left out: their words may come in pieces. */
const PASSED: ReadonlySet<string> = new Set([
  ...TEXT_FIELDS,
  ...['role', 'reasoning_signature', 'tool_calls', 'function_call', 'images'],
]);

/** A call whose input is not complete yet. */
interface HeldCall {
  text: string;
  /** The piece that the complete input is sent in. */
  deltaOf(text: string): ChunkDelta;
  /** The input is free text, and not JSON. */
  readonly isText: boolean;
}

/**
 * Replaces the texts in chunks by what the screens return, and by what `checkText` returns for a complete text. `onLeftOut` gets
 * what is not passed on.
 */
export function createChunkScreen(
  open: () => TextScreen,
  checkText: (text: string) => string,
  onLeftOut: (value: unknown) => void = () => undefined,
) {
  interface Held {
    /** The field of the current text. */
    field: TextField | undefined;
    readonly screen: TextScreen;
    readonly calls: Map<string, HeldCall>;
    /** Reasoning that was changed has no proof any more. */
    isChanged: boolean;
    /** Sources wait for the end of the text that names them. */
    readonly sources: { readonly type: string }[];
  }
  const checkArguments = (text: string): string => mapArguments(text, checkText);
  const choices = new Map<number, Held>();
  let callCharacters = 0;
  let head: Omit<ChatChunk, 'choices' | 'usage'> | undefined;

  function heldOf(index: number): Held {
    const known = choices.get(index);
    if (known !== undefined) return known;
    const fresh = {
      field: undefined,
      screen: open(),
      calls: new Map<string, HeldCall>(),
      isChanged: false,
      sources: [],
    };
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
    put(out, index, { annotations: mapTexts(sources.splice(0), checkText) });
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
    for (const { text, deltaOf, isText } of calls.values()) {
      if (text !== '') put(out, index, deltaOf(isText ? checkText(text) : checkArguments(text)));
    }
    calls.clear();
  }

  function hold({ calls }: Held, place: string, text: string, made: Omit<HeldCall, 'text'>): void {
    const known = calls.get(place);
    if (known === undefined) calls.set(place, { ...made, text });
    else known.text += text;
    callCharacters += text.length;
    if (callCharacters > MAX_WHOLE) throw tooLong();
  }

  function takeCalls(held: Held, pieces: readonly CallPiece[]): CallPiece[] {
    return pieces.map((given, position) => {
      const { custom: found, ...piece } = given as CallPiece & { readonly custom?: unknown };
      const index = Number.isInteger(piece.index) ? piece.index : position;
      const custom = asObject(found);
      if (custom !== undefined) {
        const deltaOf = (input: string): ChunkDelta => ({ tool_calls: [{ index, custom: { input } } as CallPiece] });
        hold(held, `custom ${index}`, asText(custom.input) ?? '', { deltaOf, isText: true });
        return { ...piece, custom: { ...custom, input: '' } };
      }
      const deltaOf = (text: string): ChunkDelta => ({ tool_calls: [{ index, function: { arguments: text } }] });
      hold(held, String(index), piece.function?.arguments ?? '', { deltaOf, isText: false });
      return piece.function === undefined ? piece : { ...piece, function: { ...piece.function, arguments: '' } };
    });
  }

  /** The older form of a call, of which an answer has one. */
  function takeFunctionCall(held: Held, call: FunctionCall): FunctionCall {
    const deltaOf = (text: string): ChunkDelta => ({ function_call: { arguments: text } });
    hold(held, 'function', call.arguments ?? '', { deltaOf, isText: false });
    return { ...call, arguments: '' };
  }

  function leaveOut(delta: Record<string, unknown>, name: string): void {
    onLeftOut(delta[name]);
    delete delta[name];
  }

  function read(out: ChatChunk[], { index, delta, finish_reason: reason, ...others }: Choice): void {
    const held = heldOf(index);
    let rest: ChunkDelta = { ...delta };
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
      // A proof may also come in the middle of the answer's own text, which goes on after it.
      if (held.field === 'reasoning_content') endText(out, index, held);
      if (held.isChanged) delete rest.reasoning_signature;
    }
    if (rest.tool_calls !== undefined) {
      endText(out, index, held);
      rest.tool_calls = takeCalls(held, rest.tool_calls);
    }
    if (Array.isArray(rest.annotations)) takeSources(held, rest.annotations);
    delete rest.annotations;
    if (rest.images !== undefined) rest.images = mapTexts(rest.images, checkText);
    if (rest.function_call) {
      endText(out, index, held);
      rest.function_call = takeFunctionCall(held, rest.function_call);
    }
    for (const name of Object.keys(rest)) if (!PASSED.has(name)) leaveOut(rest as Record<string, unknown>, name);
    const isEnd = typeof reason === 'string' && reason !== '';
    if (isEnd) {
      endText(out, index, held);
      endSources(out, index, held);
      // A whole call may come in one chunk with the end: its name comes before its input.
      if (held.calls.size > 0 && Object.keys(rest).length > 0) {
        put(out, index, rest);
        rest = {};
      }
      endCalls(out, index, held);
    }
    if (head === undefined || (!isEnd && Object.keys(rest).length === 0)) return;
    // The tokens of a text would show what is masked in it.
    const { logprobs: _, ...more } = others;
    out.push({ ...head, choices: [{ ...mapTexts(more, checkText), index, delta: rest, finish_reason: reason }] });
  }

  return {
    read(chunks: Chunks): Chunks {
      const out: ChatChunk[] = [];
      for (const chunk of chunks) {
        const { choices: given, usage } = chunk;
        head = knownMembers(chunk);
        onLeftOut(otherMembers(chunk));
        for (const choice of given) read(out, choice);
        if (usage !== undefined) out.push({ ...head, choices: [], usage });
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

export function tooLong(): AppError {
  return new AppError('CONTENT_BLOCKED', { guardrail: 'limit of length' });
}
