import { expandReferences } from './environment-reference.ts';
import { type ReadingContext, UNREADABLE } from './reading-context.ts';
import type { LeafAnnotation } from './setting-annotation.ts';
import { secretsOfUrl } from './url-secrets.ts';
import type { ScalarNode, ValueNode } from './value-tree.ts';

/** Reads a single value. */
export function readLeaf(annotation: LeafAnnotation, node: ValueNode, path: string, context: ReadingContext): unknown {
  const where = context.where(node.at);
  const expected = `expected ${annotation.expects}`;
  if (node.kind !== 'scalar') {
    context.report({ where, path, wrong: `there is a ${node.kind} where one value belongs`, right: expected });
    return UNREADABLE;
  }
  const expanded = expandScalar(node, path, context, annotation.fallback === '');
  if (expanded === UNREADABLE) return UNREADABLE;
  const { raw, references } = expanded;
  if (raw === '' && annotation.fallback === '') return raw;
  const reading = raw === '' ? { wrong: 'is empty' } : annotation.read(raw, context.textual || references, context);
  if ('value' in reading) {
    if (!references && holdsSecret(annotation, reading.value)) context.noteClearSecret(path);
    return reading.value;
  }
  const hidden = annotation.secrecy !== 'open' || context.concealed;
  const mend = hidden || references ? undefined : reading.mend;
  context.report({ where, path, wrong: `${shown(node, hidden)} ${reading.wrong}`, right: mend ?? expected });
  return UNREADABLE;
}

export interface ExpandedScalar {
  readonly raw: string | number | boolean;
  /** The text came, wholly or in part, from the environment. */
  readonly references: boolean;
}

/** Replaces `${env:NAME}`. A variable that is not set counts as empty where empty is the default and nothing else is written. */
export function expandScalar(
  { value, at }: ScalarNode,
  path: string,
  context: ReadingContext,
  emptyByDefault: boolean,
): ExpandedScalar | typeof UNREADABLE {
  if (typeof value !== 'string' || context.environment === undefined) return { raw: value ?? '', references: false };
  const { text, names, missing, whole, malformed } = expandReferences(value, context.environment);
  const where = context.where(at);
  if (malformed) {
    const right = `write \${env:NAME}, or $\${env:NAME} for the text itself`;
    context.report({ where, path, wrong: 'a reference to the environment is not complete', right });
    return UNREADABLE;
  }
  if (missing.length > 0 && !(whole && emptyByDefault)) {
    for (const name of missing) {
      const right = `set ${name}, or write the value`;
      context.report({ where, path, wrong: `the environment variable ${name} is not set`, right });
    }
    return UNREADABLE;
  }
  for (const name of missing) context.noteUnset(path, name);
  return { raw: text, references: names.length > 0 };
}

function holdsSecret({ secrecy }: LeafAnnotation, value: unknown): boolean {
  if (secrecy === 'url') return secretsOfUrl(String(value)).length > 0;
  return secrecy === 'secret';
}

/** A value as it was written, short enough for one line; never a secret, and never what came from a reference. */
function shown({ value }: ScalarNode, hidden: boolean): string {
  if (hidden) return 'the value';
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 56)}..."` : text;
}
