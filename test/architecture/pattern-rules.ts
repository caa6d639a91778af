import type { Expression } from 'oxc-parser';
import { type Rule, type SourceFile, type Violation, violation } from './source-file.ts';

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
