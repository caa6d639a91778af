import { createJavaScriptRegexEngine } from '@shikijs/engine-javascript';
import {
  codeToTokensBase,
  createShikiPrimitive,
  getLastGrammarStateFromMap,
  type LanguageRegistration,
  type ThemeRegistrationAny,
} from '@shikijs/primitive';

// Loaded when the first code is shown. The engine makes regular expressions of the grammars, which needs neither `eval` nor
// WebAssembly, so the policy of the page allows it.

/** Only these are built into the console. JavaScript is read as TSX, and HTML as XML, because each grammar costs kilobytes. */
const GRAMMARS = {
  c: () => import('@shikijs/langs/c'),
  csharp: () => import('@shikijs/langs/csharp'),
  css: () => import('@shikijs/langs/css'),
  diff: () => import('@shikijs/langs/diff'),
  docker: () => import('@shikijs/langs/docker'),
  go: () => import('@shikijs/langs/go'),
  java: () => import('@shikijs/langs/java'),
  json: () => import('@shikijs/langs/json'),
  kotlin: () => import('@shikijs/langs/kotlin'),
  make: () => import('@shikijs/langs/make'),
  markdown: () => import('@shikijs/langs/markdown'),
  python: () => import('@shikijs/langs/python'),
  rust: () => import('@shikijs/langs/rust'),
  shellscript: () => import('@shikijs/langs/shellscript'),
  sql: () => import('@shikijs/langs/sql'),
  toml: () => import('@shikijs/langs/toml'),
  tsx: () => import('@shikijs/langs/tsx'),
  typescript: () => import('@shikijs/langs/typescript'),
  xml: () => import('@shikijs/langs/xml'),
  yaml: () => import('@shikijs/langs/yaml'),
} satisfies Record<string, () => Promise<{ default: LanguageRegistration[] }>>;

export type Language = keyof typeof GRAMMARS;

/** A part of a line. Its kind is empty, or the end of the name of a class in the style sheet. */
export interface Piece {
  readonly text: string;
  readonly kind: string;
}

/** The kinds of code that get a colour, and the scopes of the grammars that are of this kind. A later kind wins. */
const KINDS: readonly (readonly [kind: string, scopes: readonly string[]])[] = [
  ['string', ['string', 'markup.inline.raw', 'punctuation.definition.string']],
  ['number', ['constant.numeric', 'constant.language', 'constant.character.escape', 'keyword.other.unit']],
  ['keyword', ['keyword', 'storage', 'variable.language', 'entity.name.tag', 'markup.heading', 'markup.bold']],
  ['plain', ['keyword.operator', 'storage.type.function.arrow', 'meta.template.expression']],
  ['keyword', ['keyword.operator.new', 'keyword.operator.expression', 'keyword.operator.logical.python']],
  ['function', ['entity.name.function', 'support.function', 'entity.name.command']],
  ['type', ['entity.name.type', 'entity.name.class', 'support.type', 'support.class', 'entity.other.attribute-name']],
  ['number', ['support.type.property-name.json', 'entity.name.tag.yaml', 'support.type.property-name.toml']],
  ['string', ['markup.inserted']],
  ['removed', ['markup.deleted']],
  ['comment', ['comment', 'punctuation.definition.comment', 'meta.diff.header', 'meta.diff.range']],
];
const kindsByColour = new Map<string, string>();

/** Its colours are only numbers of kinds: the style sheet has the colours, for both schemes. */
const THEME: ThemeRegistrationAny = {
  name: 'kinds',
  fg: '#000000',
  bg: '#FFFFFF',
  settings: KINDS.map(([kind, scope], index) => {
    const foreground = `#0000${(index + 1).toString(16).padStart(2, '0').toUpperCase()}`;
    if (kind !== 'plain') kindsByColour.set(foreground, kind);
    return { scope: [...scope], settings: { foreground } };
  }),
};

const shiki = createShikiPrimitive({
  engine: createJavaScriptRegexEngine({ forgiving: true }),
  themes: [THEME],
  langs: [],
  warnings: false,
});

/** So long the page is kept from other work. */
const SLICE_MS = 8;
/** A longer line stays without colours: data, or code that no person reads. */
const MAX_LINE = 1000;
/** A line that takes longer has no more colours. */
const MAX_LINE_MS = 500;
/** The first lines of a language take long, because each rule of the grammar is prepared when it is first needed. */
const MAX_TRIES = 4;
/** A text that takes longer keeps its other lines without colours. */
const MAX_TEXT_MS = 3000;

type GrammarState = NonNullable<ReturnType<typeof getLastGrammarStateFromMap>>;

/** The lines that are coloured, and the state of the grammar after each of them. */
export interface Coloured {
  readonly lines: readonly string[];
  readonly pieces: readonly (readonly Piece[])[];
  readonly states: readonly (GrammarState | undefined)[];
}

/**
 * Colours lines of code, in slices between which the page does other work. Goes on from an earlier result where the text has
 * only grown. Returns undefined if the signal ends it.
 */
export async function colourLines(
  language: Language,
  lines: readonly string[],
  signal: AbortSignal,
  earlier?: Coloured,
): Promise<Coloured | undefined> {
  if (lines.length === 0) return { lines, pieces: [], states: [] };
  if (!shiki.getLoadedLanguages().includes(language)) shiki.loadLanguageSync((await GRAMMARS[language]()).default);
  // Their last line may have grown.
  const kept = earlier === undefined ? 0 : samePrefix(earlier.lines.slice(0, -1), lines);
  const pieces = earlier?.pieces.slice(0, kept) ?? [];
  const states = earlier?.states.slice(0, kept) ?? [];
  let [end, spent] = [0, 0];
  for (const line of lines.slice(kept)) {
    if (signal.aborted) return undefined;
    if (spent > MAX_TEXT_MS) {
      states.push(states.at(-1));
      pieces.push([{ text: line, kind: '' }]);
      continue;
    }
    if (performance.now() >= end) {
      await idle();
      end = performance.now() + SLICE_MS;
    }
    const start = performance.now();
    const grammarState = states.at(-1);
    let tokens: ReturnType<typeof codeToTokensBase> = [];
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const begin = performance.now();
      tokens = codeToTokensBase(shiki, line, {
        ...{ lang: language, theme: 'kinds', tokenizeMaxLineLength: MAX_LINE, tokenizeTimeLimit: MAX_LINE_MS },
        ...(grammarState !== undefined && { grammarState }),
      });
      if (performance.now() - begin < MAX_LINE_MS) break;
    }
    states.push(getLastGrammarStateFromMap(tokens) ?? grammarState);
    pieces.push(joined((tokens[0] ?? []).map(({ content, color = '' }) => ({ text: content, kind: kindOf(color) }))));
    spent += performance.now() - start;
  }
  return { lines, pieces, states };
}

const kindOf = (colour: string) => kindsByColour.get(colour.toUpperCase()) ?? '';

function samePrefix(before: readonly string[], lines: readonly string[]): number {
  const different = before.findIndex((line, index) => line !== lines[index]);
  return different === -1 ? Math.min(before.length, lines.length) : different;
}

/** Neighbours of one kind become one piece, because each piece with a colour is an element. */
function joined(pieces: readonly Piece[]): readonly Piece[] {
  const found: Piece[] = [];
  for (const piece of pieces) {
    const last = found.at(-1);
    if (last?.kind === piece.kind) found[found.length - 1] = { text: last.text + piece.text, kind: last.kind };
    else found.push(piece);
  }
  return found;
}

interface Idle {
  /** Safari has none. */
  requestIdleCallback?(done: () => void, options: { readonly timeout: number }): unknown;
}

function idle(): Promise<void> {
  const { requestIdleCallback: callWhenIdle } = globalThis as Idle;
  return new Promise((done) => {
    if (callWhenIdle === undefined) setTimeout(done);
    else callWhenIdle(() => done(), { timeout: 200 });
  });
}
