import fc from 'fast-check';

export type JsonSchema = Readonly<Record<string, unknown>>;

const junk = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(-1, 1e308, '', ' ', '\u0000', '\ud800', '__proto__', '../../etc/passwd', '%00', [[[]]], {}),
);

/** Values that fit a schema, and values that almost do: every part may be missing, foreign or of another type. */
export function arbitraryFor(schema: JsonSchema): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 5, arbitrary: fitting(schema) }, { weight: 1, arbitrary: junk });
}

function fitting(schema: JsonSchema): fc.Arbitrary<unknown> {
  if ('const' in schema) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) return fc.oneof(...choices.map((choice) => arbitraryFor(choice as JsonSchema)));
  switch (schema.type) {
    case 'object':
      return objectOf(schema);
    case 'array':
      return fc.array(arbitraryFor((schema.items ?? {}) as JsonSchema), { maxLength: 4 });
    case 'string':
      return Array.isArray(schema.examples) ? fc.oneof(fc.string(), fc.constantFrom(...schema.examples)) : fc.string();
    case 'integer':
      return fc.integer();
    case 'number':
      return fc.double({ noNaN: true, noDefaultInfinity: true });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    default:
      return junk;
  }
}

function objectOf({ properties = {} }: JsonSchema): fc.Arbitrary<unknown> {
  const members = Object.entries(properties as Readonly<Record<string, JsonSchema>>);
  const known = Object.fromEntries(members.map(([name, member]) => [name, arbitraryFor(member)]));
  const extra = fc.dictionary(fc.constantFrom('__proto__', 'constructor', 'extra', ''), junk, { maxKeys: 2 });
  return fc
    .tuple(
      fc.record(known, { requiredKeys: [] }),
      fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: extra }),
    )
    .map(([fields, others]) => ({ ...others, ...fields }));
}
