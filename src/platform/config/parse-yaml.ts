import { createRequire } from 'node:module';
import type { Node, Pair } from 'yaml';
import type { Finding, Position } from './problem.ts';
import { joinPath } from './setting-declaration.ts';

type YamlFault = Finding<Position>;

interface ParsedYaml {
  /** Plain data; undefined when the text is empty, or when it is not YAML. */
  readonly value: unknown;
  /** Where each value stands, by its path. What an alias (*...) brings in has the place of the alias only. */
  readonly values: ReadonlyMap<string, Position>;
  /** Where the key of each value stands, by the path of the value. */
  readonly keys: ReadonlyMap<string, Position>;
  readonly faults: readonly YamlFault[];
  /** False after a syntax error: what was read then is a guess and is not looked at. */
  readonly readable: boolean;
}

const START: Position = { line: 1, column: 1 };
const MAX_DEPTH = 32;
/** Values after aliases are followed: keeps a small file from growing into a huge one. */
const MAX_VALUES = 50_000;
const MAX_SYNTAX_FAULTS = 5;

type Words = readonly [wrong: string, right: string];

/** Own words, because the parser's messages quote the text, and the text may be a secret. */
const SYNTAX_FAULTS: Readonly<Record<string, Words>> = {
  BAD_DQ_ESCAPE: ['there is a wrong escape after a backslash', 'use single quotes to keep backslashes as they are'],
  BAD_INDENT: [
    'the indentation does not line up, or a bracket is not closed',
    'indent keys of one level by the same number of spaces',
  ],
  BAD_SCALAR_START: ['a value starts with a character that YAML reserves', 'put the value into quotes'],
  BLOCK_AS_IMPLICIT_KEY: ['there is a second ": " on one line', 'put the value into quotes, or on a line of its own'],
  MISSING_CHAR: ['a quote, bracket, brace or comma is missing', 'close what was opened before this place'],
  MULTIPLE_DOCS: ['a second document starts here', 'keep everything in one document, without ---'],
  NON_STRING_KEY: ['a key is not a plain word', 'write keys as plain words'],
  TAB_AS_INDENT: ['there is a tab in the indentation', 'indent with spaces'],
};
const OTHER_FAULT: Words = ['this is not valid YAML', 'check quotes, colons and indentation'];
const TAG: Words = ['the value has a YAML tag (!...)', 'write the value without a tag, or quote it'];
const ALIAS: Words = ['an alias (*...) refers to nothing before it', 'quote the value if the * belongs to it'];
const TOO_MANY: Words = ['there are too many values here, or they nest too deeply', 'use fewer aliases'];

/** The parser's own check of unique keys compares every key with every other one; ours below is a map. */
const KEYS = { stringKeys: true, uniqueKeys: false } as const;
const STRICT = { ...KEYS, schema: 'core', version: '1.2', merge: false, resolveKnownTags: false } as const;

/** Reads one YAML 1.2 document, aliases followed. Never throws. */
export function parseYaml(text: string): ParsedYaml {
  if (text === '') return { ...unreadable([]), readable: true };
  const { LineCounter, parseDocument } = loadLibrary();
  const lineCounter = new LineCounter();
  const position = (offset: number): Position => {
    const { line, col } = lineCounter.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  try {
    const { errors, contents } = parseDocument(text, {
      ...STRICT,
      lineCounter,
      prettyErrors: false,
      logLevel: 'error',
    });
    if (errors.length === 0) return readDocument(contents, position);
    const first = errors.slice(0, MAX_SYNTAX_FAULTS);
    return unreadable(first.map(({ code, pos }) => fault(SYNTAX_FAULTS[code] ?? OTHER_FAULT, position(pos[0]))));
  } catch {
    // The parser is recursive: brackets nested by the thousand exhaust its stack.
    return unreadable([fault(['this cannot be read as YAML', 'nest less deeply'], START)]);
  }
}

function fault([wrong, right]: Words, at: Position, path = ''): YamlFault {
  return { at, path, wrong, right };
}

function unreadable(faults: readonly YamlFault[]): ParsedYaml {
  return { value: undefined, values: new Map(), keys: new Map(), faults, readable: false };
}

/** Most starts have no text to read: the library is loaded for the first one, and kept. */
const loadLibrary = (): typeof import('yaml') => createRequire(import.meta.url)('yaml');

function readDocument(contents: Node | null, position: (offset: number) => Position): ParsedYaml {
  const { isAlias, isMap, isScalar, isSeq } = loadLibrary();
  const faults: YamlFault[] = [];
  const values = new Map<string, Position>();
  const keys = new Map<string, Position>();
  const anchors = new Map<string, { readonly value: unknown; readonly size: number }>();
  let size = 0;
  let tooMany = false;

  const placeOf = (node: unknown, otherwise: Position): Position => {
    const { range } = (node ?? {}) as Partial<Node>;
    return range ? position(range[0]) : otherwise;
  };

  function read(node: unknown, path: string, depth: number, otherwise: Position): unknown {
    if (tooMany) return null;
    const at = placeOf(node, otherwise);
    if (!values.has(path)) values.set(path, at);
    const before = size;
    const target = isAlias(node) ? anchors.get(node.source) : undefined;
    size += target?.size ?? 1;
    tooMany = size > MAX_VALUES || depth > MAX_DEPTH;
    if (tooMany) faults.push(fault(TOO_MANY, at, path));
    else if (isAlias(node) && target === undefined) faults.push(fault(ALIAS, at, path));
    if (tooMany || isAlias(node)) return target?.value ?? null;
    const value = readNode(node, path, depth, at);
    const { tag, anchor } = (node ?? {}) as { tag?: string; anchor?: string };
    if (tag !== undefined && !CORE_TAG.test(tag)) faults.push(fault(TAG, at, path));
    if (anchor !== undefined) anchors.set(anchor, { value, size: size - before });
    return value;
  }

  function readNode(node: unknown, path: string, depth: number, at: Position): unknown {
    if (isMap(node)) return readMapping(node.items, path, depth, at);
    if (isSeq(node)) return node.items.map((item, index) => read(item, joinPath(path, index), depth + 1, at));
    const value = isScalar(node) ? node.value : null;
    return ['string', 'number', 'boolean'].includes(typeof value) ? value : null;
  }

  /** Of a key that is there twice, the first counts. */
  function readMapping(pairs: readonly Pair[], path: string, depth: number, at: Position): unknown {
    const members = new Map<string, unknown>();
    const lines = new Map<string, number>();
    for (const { key, value } of pairs) {
      const keyAt = placeOf(key, at);
      const name = isScalar(key) ? String(key.value) : '';
      const memberPath = joinPath(path, name);
      if (!keys.has(memberPath)) keys.set(memberPath, keyAt);
      const member = read(value, memberPath, depth + 1, keyAt);
      if (members.has(name)) {
        const wrong = `the key is there twice, first on line ${lines.get(name)}`;
        faults.push(fault([wrong, 'keep one of the two'], keyAt, memberPath));
      } else {
        members.set(name, member);
        lines.set(name, keyAt.line);
      }
    }
    return Object.fromEntries(members);
  }

  const value = contents === null ? undefined : read(contents, '', 0, START);
  return { value, values, keys, faults, readable: true };
}

const CORE_TAG = /^tag:yaml\.org,2002:(str|int|float|bool|null|map|seq)$/;
