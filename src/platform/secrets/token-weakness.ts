const LEAST_LENGTH = 16;
const LEAST_DISTINCT = 8;
/** Nobody tries longer ones; and the checks below stay quick. */
const LOOKED_AT = 256;

const COMMON_WORDS =
  /change_?me|replace_?me|p[a@]ssw[o0]rd|passwd|secret|token|example|default|admin|letmein|welcome|qwerty|dummy|test|demo|your|here|key|my/gi;

/** Why a configured token would be guessed; undefined when nothing speaks against it. Ends a sentence: "The token ...". */
export function tokenWeakness(token: string): string | undefined {
  const text = token.slice(0, LOOKED_AT);
  if (text.length < LEAST_LENGTH) return `is shorter than ${LEAST_LENGTH} characters`;
  if (/^(.{1,8})\1+.{0,7}$/s.test(text)) return 'repeats the same few characters';
  if (new Set(text).size < LEAST_DISTINCT) return `has fewer than ${LEAST_DISTINCT} different characters`;
  if (isSequence(text)) return 'is a sequence of neighbouring characters';
  const rest = text.replaceAll(COMMON_WORDS, '').replaceAll(/[\s_.,:;!-]|0?1?2?3456?7?8?9?0?/g, '');
  if (rest.length < LEAST_LENGTH / 2 || new Set(rest).size < LEAST_DISTINCT / 2) return 'is made of common words';
  return undefined;
}

/** `abcdefgh...`, `9876543210...`, `0123456789abcdef`: nearly every step is the same. */
function isSequence(text: string): boolean {
  const steps = new Map<number, number>();
  for (let index = 1; index < text.length; index += 1) {
    const step = text.charCodeAt(index) - text.charCodeAt(index - 1);
    steps.set(step, (steps.get(step) ?? 0) + 1);
  }
  return Math.max(...steps.values()) > (text.length - 1) * 0.6;
}
