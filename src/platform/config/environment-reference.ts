export type Environment = Readonly<Record<string, string | undefined>>;

export interface Expansion {
  readonly text: string;
  /** The variables that were named, whether they are set or not. */
  readonly names: readonly string[];
  readonly missing: readonly string[];
  /** The text was one reference and nothing else. */
  readonly whole: boolean;
  /** A `${env:` that is not closed, or names no possible variable. */
  readonly malformed: boolean;
}

const REFERENCE = /\$?\$\{env:([^}]*)(\}?)/g;
const VARIABLE_NAME = /^[A-Za-z_]\w*$/;

/** Replaces every `${env:NAME}`; `$${env:NAME}` stands for the text itself. What comes out is not looked at again. */
export function expandReferences(text: string, environment: Environment): Expansion {
  const names: string[] = [];
  const missing: string[] = [];
  let malformed = false;
  const expanded = text.replaceAll(REFERENCE, (match: string, name: string, end: string) => {
    if (match.startsWith('$$')) return match.slice(1);
    if (end === '' || !VARIABLE_NAME.test(name)) {
      malformed = true;
      return match;
    }
    names.push(name);
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (value === undefined) missing.push(name);
    return value ?? '';
  });
  const whole = names.length === 1 && text === `\${env:${names[0]}}`;
  return { text: expanded, names, missing, whole, malformed };
}
