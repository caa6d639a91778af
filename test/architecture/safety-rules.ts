import type { Expression, PrivateIdentifier } from 'oxc-parser';
import { type Rule, type SourceFile, type Violation, violation } from './source-file.ts';

const CHILD_PROCESS_FOLDER = 'src/platform/child-process/';
const SECRET_WORD = /(?:token|secret|password|passphrase|digest|signature|hmac|apikey|masterkey|credential)$/i;

/** No shell anywhere, and one folder that starts programs: it takes an argument vector, never a line. */
export const noShell: Rule = (file) => {
  const found: Violation[] = [];
  for (const { specifier, names, offset } of file.imports) {
    if (!/^(node:)?child_process$/.test(specifier)) continue;
    if (!file.path.startsWith(CHILD_PROCESS_FOLDER)) {
      found.push(violation(file, offset, `child_process outside ${CHILD_PROCESS_FOLDER}`));
    }
    if (names.some((name) => ['exec', 'execSync', '*'].includes(name))) {
      found.push(violation(file, offset, 'import spawn or execFile by name: exec runs a shell'));
    }
  }
  file.visit({
    ObjectExpression(node) {
      for (const property of node.properties) {
        if (property.type !== 'Property' || property.computed) continue;
        const { key, value } = property;
        const name = key.type === 'Identifier' ? key.name : key.type === 'Literal' ? key.value : '';
        const isOff = value.type === 'Literal' && value.value === false;
        if (name === 'shell' && !isOff) found.push(violation(file, property.start, 'shell: only false is allowed'));
      }
    },
  });
  return found;
};

/** Text never becomes code. */
export const noEvaluation: Rule = (file) => {
  const found: Violation[] = file.imports
    .filter(({ specifier }) => /^(node:)?vm$/.test(specifier))
    .map(({ offset }) => violation(file, offset, 'node:vm'));
  const check = (callee: Expression, offset: number) => {
    const name = lastName(callee);
    if (name === 'eval' || name === 'Function') found.push(violation(file, offset, `${name} makes code out of text`));
  };
  file.visit({
    CallExpression(node) {
      check(node.callee, node.start);
      const [first] = node.arguments;
      const isTimer = ['setTimeout', 'setInterval', 'setImmediate'].includes(lastName(node.callee) ?? '');
      const isText = first?.type === 'Literal' && typeof first.value === 'string';
      if (isTimer && isText) found.push(violation(file, node.start, 'a timer that runs text'));
    },
    NewExpression: (node) => check(node.callee, node.start),
  });
  return found;
};

/** Secrets are compared in constant time (`timingSafeEqual` over digests), so that the time tells nothing. */
export const noPlainSecretComparison: Rule = (file) => {
  const found: Violation[] = [];
  file.visit({
    BinaryExpression(node) {
      if (!['===', '!==', '==', '!='].includes(node.operator)) return;
      const { left, right } = node;
      if ((isSecret(left) && !isHarmless(right)) || (isSecret(right) && !isHarmless(left))) {
        found.push(violation(file, node.start, `${sourceOf(file, node)}: compare secrets in constant time`));
      }
    },
    CallExpression(node) {
      const { callee } = node;
      if (callee.type !== 'MemberExpression' || !['equals', 'compare'].includes(lastName(callee) ?? '')) return;
      const operands = [callee.object, ...node.arguments];
      if (operands.some((operand) => operand.type !== 'SpreadElement' && isSecret(operand))) {
        found.push(violation(file, node.start, `${sourceOf(file, node)}: compare secrets in constant time`));
      }
    },
  });
  return found;
};

function isSecret(node: Expression | PrivateIdentifier): boolean {
  const name = lastName(node);
  return name !== undefined && SECRET_WORD.test(name);
}

/** Comparing with a literal or with `undefined` tells whether there is a secret, not which. */
function isHarmless(node: Expression | PrivateIdentifier): boolean {
  return node.type === 'Literal' || (node.type === 'Identifier' && node.name === 'undefined');
}

function lastName(node: Expression | PrivateIdentifier): string | undefined {
  if (node.type === 'Identifier' || node.type === 'PrivateIdentifier') return node.name;
  if (node.type === 'ChainExpression' || node.type === 'TSNonNullExpression') return lastName(node.expression);
  if (node.type === 'ParenthesizedExpression' || node.type === 'TSAsExpression') return lastName(node.expression);
  if (node.type !== 'MemberExpression') return undefined;
  if (node.property.type === 'Literal') return String(node.property.value);
  return node.computed ? undefined : lastName(node.property);
}

function sourceOf(file: SourceFile, node: { start: number; end: number }): string {
  return file.text.slice(node.start, node.end);
}

const IDENTITY_FOLDER = 'src/platform/identity/';

/**
 * Who sees what is decided by the functions of one folder: no other file compares a principal or an owner with a fixed name,
 * or reads `seesAll`. `src/bridge/principal.ts` names the operator.
 */
export const oneRuleForOwners: Rule = (file) => {
  if (file.path.startsWith(IDENTITY_FOLDER) || !file.path.startsWith('src/')) return [];
  const found: Violation[] = [];
  const isName = (node: Expression | PrivateIdentifier) =>
    node.type === 'Literal' && ['main', 'review'].includes(String(node.value));
  file.visit({
    BinaryExpression(node) {
      if (!['===', '!==', '==', '!='].includes(node.operator)) return;
      const text = file.text.slice(node.start, node.end);
      const isFixed = isName(node.left) || isName(node.right) || /\bMAIN\b/.test(text);
      if (isFixed && file.path !== 'src/bridge/principal.ts') {
        found.push(
          violation(file, node.start, 'ask sees() or may() of src/platform/identity instead of comparing names'),
        );
      }
    },
    MemberExpression(node) {
      const { property } = node;
      if (property.type !== 'Identifier' || property.name !== 'seesAll') return;
      found.push(violation(file, node.start, 'ask sees() or ownersSought() instead of reading seesAll'));
    },
  });
  return found;
};

const WIRING = /(?:^src\/(?:system|commands)\/|\/(?:create|wire)-[\w-]+\.ts$|\/(?:routes|methods)\.ts$)/;

/** Schemas give bodies their types (`defineRoute`), and wiring fits without force: a cast would hide that it does not. */
export const noForcedTypes: Rule = (file) => {
  const found: Violation[] = [];
  file.visit({
    TSAsExpression({ expression, typeAnnotation, start, end }) {
      if (typeAnnotation.type === 'TSTypeReference' && typeAnnotation.typeName.type === 'Identifier') {
        if (typeAnnotation.typeName.name === 'const') return;
      }
      if (lastName(expression) === 'body') {
        found.push(violation(file, start, `the cast of a body: ${file.text.slice(start, end)}`));
      }
      const isForced = expression.type === 'TSAsExpression' && expression.typeAnnotation.type === 'TSUnknownKeyword';
      if (isForced && WIRING.test(file.path)) found.push(violation(file, start, '"as unknown as" in wiring'));
    },
  });
  return found;
};
