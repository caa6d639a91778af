import { Fragment, memo, useEffect, useMemo, useRef, useState } from 'react';
import type { Coloured, Language, Piece } from './colour-lines.ts';
import type { Line } from './diff-lines.ts';
import { sidesOf } from './diff-lines.ts';
import { pieces, visible } from './text.ts';

/** What a language is called behind the fence of a block, and how the names of its files end. */
const NAMES: Readonly<Record<Language, string>> = {
  c: 'c h cc cpp cxx hpp c++',
  csharp: 'cs csharp c#',
  css: 'css scss less',
  diff: 'diff patch',
  docker: 'dockerfile docker',
  go: 'go golang',
  java: 'java',
  json: 'json jsonc json5 jsonl',
  kotlin: 'kt kts kotlin',
  make: 'makefile make mk',
  markdown: 'md markdown',
  python: 'py python pyi',
  rust: 'rs rust',
  shellscript: 'sh bash zsh shell shellscript',
  sql: 'sql',
  toml: 'toml',
  tsx: 'tsx jsx js mjs cjs javascript',
  typescript: 'ts mts cts typescript',
  xml: 'xml html htm svg',
  yaml: 'yaml yml',
};
const languages = new Map(
  Object.entries(NAMES).flatMap(([language, names]) => names.split(' ').map((name) => [name, language as Language])),
);

/** The language of `ts`, `src/main.ts` or `Dockerfile`. */
export function languageOf(name: string): Language | undefined {
  const [word = ''] = name.trim().toLowerCase().split(/\s/);
  return languages.get(word.slice(Math.max(word.lastIndexOf('/'), word.lastIndexOf('.')) + 1));
}

/** Of one text; a longer one is shown without colours. */
const MAX_LINES = 2000;
const MAX_CHARACTERS = 100_000;
/** A text that grows is coloured again after this time. */
const AGAIN_MS = 100;

type Parts = readonly (readonly string[])[];

interface Wanted {
  readonly parts: Parts;
  readonly language: Language | undefined;
}

const isShort = ({ parts }: Wanted) =>
  parts.reduce((sum, { length }) => sum + length, 0) <= MAX_LINES &&
  parts.flat().reduce((sum, { length }) => sum + length, 0) <= MAX_CHARACTERS;

/** Colours texts that have nothing to do with each other, after they are shown. The result may be that of an earlier text. */
function useColours(parts: Parts, language: Language | undefined): readonly Coloured[] {
  const [coloured, setColoured] = useState<readonly Coloured[]>([]);
  const latest = useRef<Wanted>({ parts: [], language });
  const work = useRef<Promise<void>>(undefined);
  const ended = useRef(new AbortController());
  useEffect(() => {
    const controller = new AbortController();
    ended.current = controller;
    return () => controller.abort();
  }, []);
  useEffect(() => {
    latest.current = { parts, language };
    const { signal } = ended.current;
    async function colourLatest(): Promise<void> {
      const { colourLines } = await import('./colour-lines.ts');
      let done: Wanted | undefined;
      let found: readonly Coloured[] = [];
      while (done !== latest.current && !signal.aborted) {
        const wanted = latest.current;
        const next: Coloured[] = [];
        for (const [index, lines] of (isShort(wanted) ? wanted.parts : []).entries()) {
          if (wanted.language === undefined) break;
          const before = done?.language === wanted.language ? found[index] : undefined;
          const one = await colourLines(wanted.language, lines, signal, before);
          if (one === undefined) return;
          next.push(one);
        }
        found = next;
        done = wanted;
        setColoured(found);
        await new Promise((go) => setTimeout(go, AGAIN_MS));
      }
    }
    if (language === undefined || work.current !== undefined || !isShort(latest.current)) return;
    // Without the colours, because the server is away or a grammar fails, the text is still there.
    work.current = colourLatest()
      .catch(() => undefined)
      .finally(() => {
        work.current = undefined;
      });
  }, [parts, language]);
  return coloured;
}

/** The pieces of a line, if it is the one that was coloured. */
function piecesOf(coloured: Coloured | undefined, index: number, line: string): readonly Piece[] | undefined {
  return coloured?.lines[index] === line ? coloured.pieces[index] : undefined;
}

interface CodeProps {
  readonly text: string;
  /** Behind the fence of the block. */
  readonly name: string;
}

/** The text of a block of code, in colours if its language is one of ours. */
export const Code = memo(function Code({ text, name }: CodeProps) {
  const shown = visible(text);
  const parts = useMemo(() => [shown.split('\n')], [shown]);
  const [coloured] = useColours(parts, languageOf(name));
  const [lines = []] = parts;
  if (coloured === undefined) return drawnLines(shown);
  return groupsOf(lines).map(({ start, group }) => (
    <LineGroup
      key={start}
      isBlock={lines.length > GROUP}
      lines={group}
      pieces={group.map((line, index) => piecesOf(coloured, start + index, line))}
      isLast={start + group.length === lines.length}
    />
  ));
});

const LINE_END = /\n/;

function drawnLines(text: string) {
  const found = pieces(text, LINE_END);
  if (found.length === 1) return found[0];
  return found.map((piece, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
    <span key={index} className="piece">
      {piece}
    </span>
  ));
}

/** So many lines are drawn together: while a text grows, only the last of these groups changes. */
const GROUP = 40;

function groupsOf(lines: readonly string[]) {
  return Array.from({ length: Math.ceil(lines.length / GROUP) }, (_, index) => ({
    start: index * GROUP,
    group: lines.slice(index * GROUP, (index + 1) * GROUP),
  }));
}

interface LineGroupProps {
  readonly lines: readonly string[];
  readonly pieces: readonly (readonly Piece[] | undefined)[];
  readonly isBlock: boolean;
  readonly isLast: boolean;
}

const LineGroup = memo(
  function LineGroup({ lines, pieces: found, isBlock, isLast }: LineGroupProps) {
    const drawn = lines.map((line, index) => (
      // biome-ignore lint/suspicious/noArrayIndexKey: lines of a text have no other name
      <Fragment key={index}>
        <CodeLine text={line} pieces={found[index]} />
        {isLast && index === lines.length - 1 ? '' : '\n'}
      </Fragment>
    ));
    return isBlock ? <span className="piece">{drawn}</span> : drawn;
  },
  (before, after) =>
    before.isBlock === after.isBlock &&
    before.isLast === after.isLast &&
    before.lines.length === after.lines.length &&
    before.lines.every((line, index) => line === after.lines[index] && before.pieces[index] === after.pieces[index]),
);

interface CodeLineProps {
  readonly text: string;
  /** Undefined: not coloured, or not yet. */
  readonly pieces: readonly Piece[] | undefined;
}

/** One line of code. */
export function CodeLine({ text, pieces: found }: CodeLineProps) {
  if (found === undefined) return text;
  return found.map((piece, index) =>
    piece.kind === '' ? (
      piece.text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
      <span key={index} className={`code-${piece.kind}`}>
        {piece.text}
      </span>
    ),
  );
}

/** The pieces of the lines of a diff: each part of the old and of the new file is coloured by itself. */
export function useDiffColours(lines: readonly Line[], path: string): ReadonlyMap<Line, readonly Piece[]> {
  const sides = useMemo(() => sidesOf(lines), [lines]);
  const parts = useMemo(() => sides.map((side) => side.map(({ text }) => visible(text))), [sides]);
  const coloured = useColours(parts, languageOf(path));
  return useMemo(() => {
    const found = new Map<Line, readonly Piece[]>();
    for (const [place, side] of sides.entries()) {
      for (const [index, line] of side.entries()) {
        const one = piecesOf(coloured[place], index, parts[place]?.[index] ?? '');
        if (one !== undefined) found.set(line, one);
      }
    }
    return found;
  }, [sides, parts, coloured]);
}
