import type { Expression } from 'oxc-parser';
import { type Rule, type SourceFile, type Violation, violation } from './source-file.ts';

/** Far more than any pattern takes that can be judged, also on a busy machine. */
const ANALYSIS_MS = 60_000;

interface Pattern {
  readonly source: string;
  readonly flags: string;
  readonly offset: number;
}

/** Every regular expression with a fixed text: literals, `new RegExp('...')`, and `pattern: '...'` of a JSON schema. */
export function patternsOf(file: SourceFile): Pattern[] {
  const patterns: Pattern[] = [];
  file.visit({
    Literal(node) {
      if ('regex' in node) patterns.push({ source: node.regex.pattern, flags: node.regex.flags, offset: node.start });
    },
    NewExpression(node) {
      const [source, flags] = node.arguments;
      if (node.callee.type !== 'Identifier' || node.callee.name !== 'RegExp' || source?.type !== 'Literal') return;
      const flagText = flags?.type === 'Literal' && typeof flags.value === 'string' ? flags.value : '';
      if (typeof source.value === 'string')
        patterns.push({ source: source.value, flags: flagText, offset: node.start });
    },
    ObjectExpression(node) {
      for (const property of node.properties) {
        if (property.type !== 'Property' || property.key.type !== 'Identifier') continue;
        const { key, value } = property;
        if (!/^(?:pattern|\w+Pattern)$/.test(key.name) || value.type !== 'Literal') continue;
        if (typeof value.value === 'string') patterns.push({ source: value.value, flags: 'u', offset: value.start });
      }
    },
  });
  return patterns;
}

/** A pattern that is put together at run time can be made to run for hours by whoever supplies a part of it. */
export const noDynamicPatterns: Rule = (file) => {
  const found: Violation[] = [];
  const check = (callee: Expression, first: { type: string } | undefined, offset: number) => {
    if (callee.type === 'Identifier' && callee.name === 'RegExp' && first?.type !== 'Literal') {
      found.push(violation(file, offset, 'a regular expression that is put together at run time'));
    }
  };
  file.visit({
    NewExpression: ({ callee, arguments: [first], start }) => check(callee, first, start),
    CallExpression: ({ callee, arguments: [first], start }) => check(callee, first, start),
  });
  return found;
};

/**
 * Patterns whose time can grow faster than the length of the text, as the analyser `recheck` sees them. Those in `known`
 * were judged by people.
 */
export async function findSlowPatterns(file: SourceFile, known: readonly string[] = []): Promise<Violation[]> {
  const found: Violation[] = [];
  for (const { source, flags, offset } of patternsOf(file)) {
    if (known.includes(source)) continue;
    const verdict = await analyse(source, flags);
    if (verdict !== 'safe') found.push(violation(file, offset, `/${source}/${flags} is ${verdict}`));
  }
  return found;
}

/**
 * The analysis over automata is exact, but it does not know look-behinds and hardly ends for some word boundaries. Such a
 * pattern is judged without them, which can only make it match in more places. Back references are fuzzed.
 */
async function analyse(source: string, flags: string): Promise<string> {
  if (isPlainlyLinear(source, flags)) return 'safe';
  // The analyser in JavaScript: its other forms start a Java or a native program.
  process.env.RECHECK_BACKEND = 'pure';
  const { check } = await import('recheck');
  const checker = /\\[1-9]/.test(source) ? 'fuzz' : 'automaton';
  const judged = source.replaceAll(/\\b|\(\?<[!=](?:\[[^\]]*\]|[^()[\]])*\)/g, '');
  const result = await check(judged, flags, { timeout: ANALYSIS_MS, checker });
  if (result.status === 'safe') return 'safe';
  return result.status === 'vulnerable' ? result.complexity.summary : 'too complicated to judge';
}

/**
 * Most patterns need no analyser. Without any quantifier that has no upper bound, the time at each place is bounded; with
 * one of them, it is at most linear, and there is only one place to start from when the pattern is tied to the beginning.
 */
function isPlainlyLinear(source: string, flags: string): boolean {
  const bare = source.replaceAll(/\\./gs, 'x').replaceAll(/\[[^\]]*\]/g, 'x');
  if (/\\[1-9]/.test(source) || /\)\{/.test(bare)) return false;
  const unbounded = bare.match(/[*+]|\{\d+,\}/g)?.length ?? 0;
  const tied = flags.includes('y') || (bare.startsWith('^') && !flags.includes('m') && !bare.includes('|'));
  return unbounded === 0 || (unbounded === 1 && tied);
}
