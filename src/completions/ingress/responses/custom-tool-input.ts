/** Reads the text of a custom tool out of the arguments that the model streams for it: `{"input":"..."}`. */
export interface CustomToolInput {
  /** What the next piece of the arguments adds to the text. */
  read(piece: string): string;
  /** The whole text. Arguments that are not of that form are taken as the text themselves. */
  whole(): string;
}

const START = /^\s*\{\s*"input"\s*:\s*"/;
/** The beginning is looked for in so many characters: longer white space is no beginning that a model writes. */
const MAX_START = 1000;
const ESCAPE_LENGTH = 2;
const UNICODE_ESCAPE_LENGTH = 6;

export function createCustomToolInput(): CustomToolInput {
  const pieces: string[] = [];
  /** What could not be decoded yet: the beginning while it is not complete, then half an escape at most. */
  let rest = '';
  let state: 'beginning' | 'text' | 'over' = 'beginning';
  const text: string[] = [];

  return {
    read(piece) {
      pieces.push(piece);
      if (state === 'over') return '';
      rest += piece;
      if (state === 'beginning') {
        const found = START.exec(rest.slice(0, MAX_START));
        if (found === null) {
          if (rest.length > MAX_START) state = 'over';
          return '';
        }
        rest = rest.slice(found[0].length);
        state = 'text';
      }
      const [end, closed] = decodableEnd(rest);
      const added = decode(rest.slice(0, end));
      rest = rest.slice(end);
      if (closed) state = 'over';
      text.push(added);
      return added;
    },
    whole() {
      const source = pieces.join('');
      return inputOf(source) ?? (text.length === 0 ? source : text.join(''));
    },
  };
}

/** The end of what can be decoded yet: the closing quote, or the start of an escape that is still incomplete. */
function decodableEnd(source: string): [end: number, closed: boolean] {
  let at = 0;
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
