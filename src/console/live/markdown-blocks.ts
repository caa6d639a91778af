import { Lexer, type Token } from 'marked';

/** A text that was split into blocks, to go on from when it has grown. */
export interface Lexed {
  readonly text: string;
  readonly blocks: readonly Token[];
}

export const EMPTY: Lexed = { text: '', blocks: [] };

/** A longer text of one block is shown without its marks: nobody writes a paragraph like that by hand. */
const MAX_INLINE = 20_000;
/** The lexer needs a time that grows with the square of these characters: 20,000 of them would stop the page for seconds. */
const MARKS = /[*_~]/g;
const MAX_MARKS = 1000;
/** In each definition of a link. Those count for the whole text, so that a text with one is read as a whole. */
const DEFINITION = ']:';

/**
 * Splits Markdown into blocks. Of a text that has only grown, the blocks before the last one stay the same objects: what comes
 * behind a block can change that block, and none before it.
 */
export function lexGrown(before: Lexed, text: string): Lexed {
  if (text === before.text) return before;
  const last = before.blocks.findLastIndex(({ type }) => type !== 'space');
  if (last < 1 || !text.startsWith(before.text) || text.includes(DEFINITION)) return { text, blocks: lex(text) };
  const kept = before.blocks.slice(0, last);
  const start = kept.map(({ raw }) => raw).join('');
  // The lexer replaces some characters, such as line ends of Windows: then the places do not fit, and all is read again.
  if (!before.text.startsWith(start)) return { text, blocks: lex(text) };
  return { text, blocks: [...kept, ...lex(text.slice(start.length))] };
}

/** Quotes inside each other like this take long to read, and thousands of them more than the stack of the lexer. */
const DEEP = ['> '.repeat(50), '>'.repeat(50)];

function lex(text: string): readonly Token[] {
  if (DEEP.some((quotes) => text.includes(quotes))) return lexApart(text);
  const lexer = new Lexer({ gfm: true });
  try {
    lexer.blockTokens(text.replaceAll(/\r\n|\r/g, '\n'), lexer.tokens);
    for (const { src, tokens } of lexer.inlineQueue) {
      if (src.length <= MAX_INLINE && (src.match(MARKS)?.length ?? 0) <= MAX_MARKS) lexer.inlineTokens(src, tokens);
      else tokens.push(plain(src));
    }
    return lexer.tokens;
  } catch {
    return lexApart(text);
  }
}

/** Reads each paragraph by itself: one that cannot be read is shown as it is, and the others are not lost. */
function lexApart(text: string): readonly Token[] {
  const paragraphs = text.split(/(?<=\n\n)/);
  return paragraphs.length === 1 ? [plain(text)] : paragraphs.flatMap(lex);
}

const plain = (text: string): Token => ({ type: 'text', raw: text, text, escaped: false });
