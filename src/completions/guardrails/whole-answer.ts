import { asObject } from '../dialects/json-value.ts';

/** The members of an answer, or of a chunk, that have no words in them, besides its choices and its usage. */
const WORDLESS = ['id', 'object', 'created', 'model', 'system_fingerprint', 'service_tier'] as const;
const KNOWN: ReadonlySet<string> = new Set([...WORDLESS, 'choices', 'usage']);

/** Returns the head of a chunk. What else stands beside its choices may have words, such as lists of pages. */
export function knownMembers<Chunk extends object>(chunk: Chunk): Omit<Chunk, 'choices' | 'usage'> {
  const given = chunk as Readonly<Record<string, unknown>>;
  const head: Record<string, unknown> = {};
  for (const name of WORDLESS) if (given[name] !== undefined) head[name] = given[name];
  return head as Omit<Chunk, 'choices' | 'usage'>;
}

/** Returns everything that is not in the head of an answer, and neither choices nor usage. */
export function otherMembers(answer: object): object {
  return Object.fromEntries(Object.entries(answer).filter(([name]) => !KNOWN.has(name)));
}

/** Members that repeat a text piece by piece: token by token, or word by word. */
const PIECEWISE: ReadonlySet<string> = new Set(['logprobs', 'words', 'tokens']);

/** Removes what repeats a text piece by piece. What was masked in the text could be read there. */
export function withoutTokens<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(withoutTokens) as Value;
  const given = asObject(value);
  if (given === undefined) return value;
  const kept = Object.entries(given).filter(([name, member]) => !PIECEWISE.has(name) || typeof member !== 'object');
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutTokens(member)])) as Value;
}
