import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check } from 'recheck';
import { patternsOf } from '../architecture/pattern-rules.ts';
import {
  describe,
  parseSource,
  readSources,
  type SourceFile,
  type Violation,
  violation,
} from '../architecture/source-file.ts';

/** Part of `npm run check`, which installs the analyser. */

const program = readSources(['src']);
// The analyser in JavaScript: its other forms start a Java or a native program.
process.env.RECHECK_BACKEND = 'pure';
/** Far more than any pattern takes that can be judged, also on a busy machine. */
const ANALYSIS_MS = 60_000;

/** Patterns that the analyser refuses, cannot judge or takes long for, and why they are harmless all the same. */
const judgedPatterns: readonly { source: RegExp; because: string }[] = [
  {
    source: /\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*["']?\s{0,3}[:=]\s{0,3}\\*["']?)[^\r\n"'\\]+/,
    because: 'the analyser calls it safe, after fifteen seconds',
  },
  {
    source:
      /(?<![A-Za-z0-9])(tsk_|tpt_|trk_|agt_|whs_|sk-|sk_|gsk_|xai-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[\w-]{8,}/,
    because: 'whatever follows a prefix is taken as far as it goes, and nothing comes after it: no way back is tried',
  },
  {
    source: /(?<![\w.%-])([A-Za-z_][\w.%-]{1,63})(\\*["']?\s{0,3}[:=]\s{0,3})/,
    because: 'a name starts only where none goes on, has at most 64 characters, and no backslash is part of it',
  },
  {
    source: /(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?/,
    because: 'a token starts only where none goes on, and its parts are parted by a dot that no part holds',
  },
  {
    source:
      /(?<![A-Za-z0-9])(?:tsk_|tpt_|trk_|agt_|whs_|sk-|sk_|gsk_|xai-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|hf_)[\w-]{16,}/,
    because: 'whatever follows a prefix is taken as far as it goes, and nothing comes after it: no way back is tried',
  },
  {
    source: /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/,
    because:
      'what follows the first line has no dash in it, so no second beginning, and its end may be missing: no way back is tried',
  },
  {
    source: /(\\*["'])(.*?)(?:\1|$)|[^\s,;&"'\\}\])]+/,
    because: 'tried at one place of a text of at most 10 kB: the back reference is as long as the backslashes there',
  },
];

test('O-14: no regular expression takes more than linear time', async () => {
  const known = judgedPatterns.map(({ source }) => source.source);
  const violations: Violation[] = [];
  for (const file of program) violations.push(...(await findSlowPatterns(file, known)));
  assert.equal(violations.length, 0, `\n${describe(violations)}`);
});

test('every judged pattern is still there', () => {
  const sources = program.flatMap(patternsOf).map(({ source }) => source);
  assert.ok(sources.length > 0, 'there are patterns to judge');
  assert.deepEqual(
    judgedPatterns.filter(({ source }) => !sources.includes(source.source)),
    [],
  );
});

test('O-14: a pattern that can take exponential or polynomial time is found', async () => {
  const slow = ['/^(a+)+$/', '/^(?:a|a)*$/', '/\\s+$/', "new RegExp('(x+x+)+y')", "{ pattern: '^(a+)+$' }"];
  for (const pattern of slow) {
    const file = parseSource('src/a.ts', `const p = ${pattern};`);
    assert.equal((await findSlowPatterns(file)).length, 1, pattern);
  }
  assert.deepEqual(await findSlowPatterns(parseSource('src/a.ts', 'const p = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;')), []);
});

/**
 * Patterns whose time can grow faster than the length of the text, as the analyser `recheck` sees them. Those in `known`
 * were judged by people.
 */
async function findSlowPatterns(file: SourceFile, known: readonly string[] = []): Promise<Violation[]> {
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
