import { AppError } from '../../platform/errors/app-error.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { FindContent, Found } from './find-content.ts';

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

/** Names of members that contain identifiers or bytes, and no text to check. */
const NOT_WORDS: ReadonlySet<string> = new Set([
  ...['model', 'role', 'type', 'id', 'object', 'name', 'call_id', 'tool_call_id', 'tool_use_id', 'item_id', 'status'],
  ...['format', 'encoding_format', 'detail', 'media_type', 'mime_type', 'mimeType', 'cache_control', 'finish_reason'],
  ...['signature', 'encrypted_content', 'reasoning_signature', 'thoughtSignature'],
]);
/** Bytes in base64, or words: some documents are plain text. */
const BYTES: ReadonlySet<string> = new Set(['data', 'file_data', 'b64_json', 'url', 'image_url', 'uri']);
const BASE64 = /^(?:data:[\w/+.;=-]{0,200},)?[\w+/=-]{100,}$/;
/** Members whose own members may have any name, such as arguments of calls. */
const FREE: ReadonlySet<string> = new Set(['arguments', 'input', 'args', 'metadata', 'response']);
/** The smallest number that is checked, because shorter ones are not phone or card numbers. */
const MIN_NUMBER = 1_000_000;

/**
 * Visits all texts in a JSON value, always in the same order, and puts what `take` returns in their place. What does not
 * change stays the very same value. The arguments of calls are JSON inside of a string: they are visited as what they hold.
 */
export function mapTexts<Value>(value: Value, take: (text: string) => string): Value {
  return mapValue(value, '', false, take) as Value;
}

function mapValue(value: unknown, name: string, isFree: boolean, take: (text: string) => string): unknown {
  if (typeof value === 'string') return mapString(value, name, isFree, take);
  if (typeof value === 'number' && isFree && Number.isSafeInteger(value) && value >= MIN_NUMBER) {
    const text = String(value);
    const taken = take(text);
    return taken === text ? value : taken;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const mapped = value.map((item) => mapValue(item, name, isFree, take));
    return mapped.some((item, index) => item !== value[index]) ? mapped : value;
  }
  const given = value as Readonly<Record<string, unknown>>;
  let changed: Record<string, unknown> | undefined;
  for (const key of Object.keys(given)) {
    const before = given[key];
    const after = mapValue(before, key, isFree || (FREE.has(key) && isNested(before)), take);
    if (after === before) continue;
    changed ??= { ...given };
    changed[key] = after;
  }
  return changed ?? value;
}

function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function mapString(text: string, name: string, isFree: boolean, take: (text: string) => string): string {
  if (text === '' || (!isFree && NOT_WORDS.has(name)) || (BYTES.has(name) && BASE64.test(text))) return text;
  return name === 'arguments' ? mapArguments(text, take) : take(text);
}

/** The arguments of a call, as text. What is not JSON is visited as it is. */
export function mapArguments(text: string, take: (text: string) => string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return take(text);
  }
  const mapped = mapValue(parsed, '', true, take);
  return mapped === parsed ? text : JSON.stringify(mapped);
}
