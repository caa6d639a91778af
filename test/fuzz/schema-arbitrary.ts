import fc from '../kit/properties.ts';

export type JsonSchema = Readonly<Record<string, unknown>>;

export interface ArbitraryOptions {
  /** How often a part is foreign, against five times that it is not. */
  readonly junkWeight?: number;
  /** Texts that the code looks for, so that what is made gets past its first question. */
  readonly words?: readonly string[];
}

const junk = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(-1, 1e308, '', ' ', '\u0000', '\ud800', '__proto__', '../../etc/passwd', '%00', [[[]]], {}),
);

/** Values that fit a schema, and values that almost do: every part may be missing, foreign or of another type. */
export function arbitraryFor(schema: JsonSchema, options: ArbitraryOptions = {}): fc.Arbitrary<unknown> {
  const { junkWeight = 1 } = options;
  const value = fitting(schema, options);
  return junkWeight === 0 ? value : fc.oneof({ weight: 5, arbitrary: value }, { weight: junkWeight, arbitrary: junk });
}

function fitting(schema: JsonSchema, options: ArbitraryOptions): fc.Arbitrary<unknown> {
  if ('const' in schema) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) return fc.oneof(...choices.map((choice) => arbitraryFor(choice as JsonSchema, options)));
  switch (schema.type) {
    case 'object':
      return objectOf(schema, options);
    case 'array':
      return fc.array(arbitraryFor((schema.items ?? {}) as JsonSchema, options), {
        minLength: numberOf(schema.minItems, 0),
        maxLength: Math.max(4, numberOf(schema.minItems, 0)),
      });
    case 'string':
      return textOf(schema, options);
    case 'integer':
      return fc.integer(limitsOf(schema));
    case 'number':
      return fc.double({ noNaN: true, noDefaultInfinity: true, ...limitsOf(schema) });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    default:
      return junk;
  }
}

function textOf({ examples, minLength }: JsonSchema, { words = [] }: ArbitraryOptions): fc.Arbitrary<unknown> {
  const known: readonly unknown[] = [...words, ...(Array.isArray(examples) ? examples : [])];
  const text = fc.string({ minLength: numberOf(minLength, 0) });
  return known.length === 0 ? text : fc.oneof(text, { weight: 2, arbitrary: fc.constantFrom(...known) });
}

function limitsOf({ minimum, maximum }: JsonSchema): { min?: number; max?: number } {
  return {
    ...(typeof minimum === 'number' && { min: minimum }),
    ...(typeof maximum === 'number' && { max: maximum }),
  };
}

function numberOf(value: unknown, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise;
}

function objectOf({ properties = {}, required = [] }: JsonSchema, options: ArbitraryOptions): fc.Arbitrary<unknown> {
  const members = Object.entries(properties as Readonly<Record<string, JsonSchema>>);
  const known = Object.fromEntries(members.map(([name, member]) => [name, arbitraryFor(member, options)]));
  const extra = fc.dictionary(fc.constantFrom('__proto__', 'constructor', 'extra', ''), junk, { maxKeys: 2 });
  const requiredKeys = options.junkWeight === 0 ? (required as readonly string[]) : [];
  return fc
    .tuple(
      fc.record(known, { requiredKeys: [...requiredKeys] }),
      fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: extra }),
    )
    .map(([fields, others]) => ({ ...others, ...fields }));
}
