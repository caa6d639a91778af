/** Reads the text of a custom tool out of the arguments that the model streams for it: `{"input":"..."}`. */
export interface CustomToolInput {
  /** What the next piece of the arguments adds to the text. */
  read(piece: string): string;
  /** The whole text. Arguments that are not of that form are taken as the text themselves. */
  whole(): string;
}

const START = /^\s*\{\s*"input"\s*:\s*"/;
const ESCAPE_LENGTH = 2;
const UNICODE_ESCAPE_LENGTH = 6;

export function createCustomToolInput(): CustomToolInput {
  let source = '';
  /** Up to where the text was decoded; -1 while its beginning has not been seen. */
  let position = -1;
  let ended = false;
  let text = '';

  return {
    read(piece) {
      source += piece;
      if (position === -1) position = START.exec(source)?.[0].length ?? -1;
      if (position === -1 || ended) return '';
      const [end, closed] = decodableEnd(source, position);
      const added = decode(source.slice(position, end));
      position = end;
      ended = closed;
      text += added;
      return added;
    },
    whole: () => inputOf(source) ?? (position === -1 ? source : text),
  };
}

/** The end of what can be decoded yet: the closing quote, or the start of an escape that is still incomplete. */
function decodableEnd(source: string, start: number): [end: number, closed: boolean] {
  let at = start;
  while (at < source.length) {
    const character = source[at];
    if (character === '"') return [at, true];
    if (character !== '\\') {
      at += 1;
      continue;
    }
    const length = escapeLength(source, at);
    if (at + length > source.length) return [at, false];
    at += length;
  }
  return [at, false];
}

/** Both halves of a character beyond the first plane are one unit: half of one is no text. */
function escapeLength(source: string, at: number): number {
  if (source[at + 1] !== 'u') return ESCAPE_LENGTH;
  const isFirstHalf = /^d[89ab]/i.test(source.slice(at + 2, at + 4));
  return isFirstHalf ? 2 * UNICODE_ESCAPE_LENGTH : UNICODE_ESCAPE_LENGTH;
}

/** Models leave line breaks unescaped now and then. What is no escape at all stays as it is. */
function decode(raw: string): string {
  const escaped = raw.replaceAll(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
  return parsed(`"${escaped}"`) ?? raw;
}

function inputOf(source: string): string | undefined {
  try {
    const value: unknown = JSON.parse(source);
    const input = typeof value === 'object' && value !== null && 'input' in value ? value.input : undefined;
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}

function parsed(literal: string): string | undefined {
  try {
    return String(JSON.parse(literal));
  } catch {
    return undefined;
  }
}
