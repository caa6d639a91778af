import { createRequire } from 'node:module';
import type { Node, Pair } from 'yaml';
import { joinPath } from './setting-annotation.ts';

interface YamlFault {
  readonly at: Position;
  readonly path: string;
  readonly wrong: string;
  readonly right: string;
}

interface ParsedYaml {
  /** Undefined when the text is empty, or when it is no YAML at all. */
  readonly root: ValueNode | undefined;
  readonly faults: readonly YamlFault[];
  /** False after a syntax error: what was read then is a guess and is not looked at. */
  readonly readable: boolean;
}

const MAX_DEPTH = 32;
/** Values after aliases are followed: keeps a small file from growing into a huge one. */
const MAX_VALUES = 50_000;
const MAX_SYNTAX_FAULTS = 5;

/** Own words, because the parser's messages quote the text, and the text may be a secret. */
const SYNTAX_FAULTS: Readonly<Record<string, readonly [wrong: string, right: string]>> = {
  BAD_DQ_ESCAPE: [
    'there is a wrong escape after a backslash',
    'use single quotes where backslashes are meant literally',
  ],
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

/** Reads one YAML 1.2 document, aliases followed. Never throws. */
export function parseYaml(text: string): ParsedYaml {
  const { LineCounter, parseDocument } = loadLibrary();
  const lineCounter = new LineCounter();
  const position = (offset: number): Position => {
    const { line, col } = lineCounter.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  try {
    const document = parseDocument(text, {
      lineCounter,
      prettyErrors: false,
      logLevel: 'error',
      schema: 'core',
      version: '1.2',
      merge: false,
      resolveKnownTags: false,
      stringKeys: true,
      // The parser's own check compares every key with every other one; ours below is a map.
      uniqueKeys: false,
    });
    if (document.errors.length > 0) {
      const faults = document.errors.slice(0, MAX_SYNTAX_FAULTS).map(({ code, pos }) => {
        const [wrong, right] = SYNTAX_FAULTS[code] ?? [
          'this is not valid YAML',
          'check quotes, colons and indentation',
        ];
        return { at: position(pos[0]), path: '', wrong, right };
      });
      return { root: undefined, faults, readable: false };
    }
    return buildTree(document.contents, position);
  } catch {
    // The parser is recursive: brackets nested by the thousand exhaust its stack.
    const fault = {
      at: { line: 1, column: 1 },
      path: '',
      wrong: 'this cannot be read as YAML',
      right: 'nest less deeply',
    };
    return { root: undefined, faults: [fault], readable: false };
  }
}

/** Most starts have no text to read: the library is loaded for the first one, and kept. */
function loadLibrary(): typeof import('yaml') {
  return createRequire(import.meta.url)('yaml');
}

function buildTree(contents: Node | null, position: (offset: number) => Position): ParsedYaml {
  const { isAlias, isMap, isScalar, isSeq } = loadLibrary();
  const faults: YamlFault[] = [];
  const anchors = new Map<string, { readonly node: ValueNode; readonly size: number }>();
  let size = 0;
  let tooMany = false;

  const placeOf = (node: unknown, fallback: Position): Position => {
    const range = (node as Node | null)?.range;
    return range === undefined || range === null ? fallback : position(range[0]);
  };

  function empty(at: Position): ValueNode {
    return { kind: 'scalar', at, value: null };
  }

  function build(node: unknown, path: string, depth: number, fallback: Position): ValueNode {
    const at = placeOf(node, fallback);
    if (tooMany) return empty(at);
    size += 1;
    if (isAlias(node)) return follow(node.source, path, at);
    if (size > MAX_VALUES || depth > MAX_DEPTH) return giveUp(path, at);
    const before = size;
    const built = convert(node, path, depth, at);
    const { tag, anchor } = (node ?? {}) as { tag?: string; anchor?: string };
    if (tag !== undefined && !isCoreTag(tag)) {
      faults.push({
        at,
        path,
        wrong: 'the value has a YAML tag (!...)',
        right: 'write the value without a tag, or quote it',
      });
    }
    if (anchor !== undefined) anchors.set(anchor, { node: built, size: size - before + 1 });
    return built;
  }

  function giveUp(path: string, at: Position): ValueNode {
    tooMany = true;
    faults.push({
      at,
      path,
      wrong: 'there are too many values here, or they nest too deeply',
      right: 'use fewer aliases',
    });
    return empty(at);
  }

  function follow(anchor: string, path: string, at: Position): ValueNode {
    const target = anchors.get(anchor);
    if (target === undefined) {
      const wrong = 'an alias (*...) refers to nothing before it';
      faults.push({ at, path, wrong, right: 'quote the value if the * belongs to it' });
      return empty(at);
    }
    size += target.size;
    return size > MAX_VALUES ? giveUp(path, at) : target.node;
  }

  function convert(node: unknown, path: string, depth: number, at: Position): ValueNode {
    if (isMap(node)) return convertMapping(node.items, path, depth, at);
    if (isSeq(node)) {
      const items = node.items.map((item, index) => build(item, joinPath(path, index), depth + 1, at));
      return { kind: 'list', at, items };
    }
    const value = isScalar(node) ? node.value : null;
    const plain = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
    return { kind: 'scalar', at, value: plain ? value : null };
  }

  function convertMapping(pairs: readonly Pair[], path: string, depth: number, at: Position): ValueNode {
    const entries = new Map<string, MappingEntry>();
    for (const { key, value } of pairs) {
      const keyAt = placeOf(key, at);
      const name = isScalar(key) ? String(key.value) : '';
      const childPath = joinPath(path, name.slice(0, 100));
      const first = entries.get(name);
      if (first !== undefined) {
        const wrong = `the key is there twice, first on line ${first.keyAt.line}`;
        faults.push({ at: keyAt, path: childPath, wrong, right: 'keep one of the two' });
      }
      const node = build(value, childPath, depth + 1, keyAt);
      if (first === undefined) entries.set(name, { keyAt, node });
    }
    return { kind: 'mapping', at, entries };
  }

  const root = contents === null ? undefined : build(contents, '', 0, { line: 1, column: 1 });
  return { root, faults, readable: true };
}

function isCoreTag(tag: string): boolean {
  return /^tag:yaml\.org,2002:(str|int|float|bool|null|map|seq)$/.test(tag);
}

/** Where something stands in a text, counted from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A value as somebody wrote it, with its place, before anything is known about the settings. */
export type ValueNode = ScalarNode | ListNode | MappingNode;

export interface ScalarNode {
  readonly kind: 'scalar';
  readonly at: Position;
  readonly value: string | number | boolean | null;
}

interface ListNode {
  readonly kind: 'list';
  readonly at: Position;
  readonly items: readonly ValueNode[];
}

export interface MappingNode {
  readonly kind: 'mapping';
  readonly at: Position;
  readonly entries: ReadonlyMap<string, MappingEntry>;
}

interface MappingEntry {
  readonly keyAt: Position;
  readonly node: ValueNode;
}

/** A key with nothing after it counts as not written. */
export function isAbsent(node: ValueNode | undefined): boolean {
  return node === undefined || (node.kind === 'scalar' && node.value === null);
}
