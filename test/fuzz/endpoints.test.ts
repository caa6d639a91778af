import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Compile, type Validator } from 'typebox/schema';
import fc from '../kit/properties.ts';
import { startProgram } from '../kit/running-program.ts';
import { runs } from './any-input.ts';
import { arbitraryFor, type JsonSchema } from './schema-arbitrary.ts';

const METHODS = ['get', 'post', 'put', 'patch', 'delete', 'options'];

interface MediaTypes {
  readonly content?: Readonly<Record<string, { readonly schema?: JsonSchema }>>;
}

interface Operation {
  readonly operationId: string;
  readonly requestBody?: MediaTypes;
  readonly responses: Readonly<Record<string, MediaTypes>>;
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const program = await startProgram({ after }, { args: ['--log-level', 'error'] });
const document = (await (await fetch(`${program.url}/openapi.json`)).json()) as Document;

for (const [path, operations] of Object.entries(document.paths)) {
  for (const method of METHODS) {
    const operation = operations[method];
    if (operation === undefined) continue;
    test(`O-15: ${method.toUpperCase()} ${path} answers anything without failing, in a shape that it describes`, async () => {
      const schema = operation.requestBody?.content?.['application/json']?.schema;
      const body = schema === undefined ? fc.constant(undefined) : bodyText(schema);
      const headers = fc.record(
        {
          accept: fc.constantFrom('*/*', 'text/html', 'text/event-stream', 'application/json', ''),
          'content-type': fc.constantFrom('application/json', 'application/json; charset=utf-8', 'text/plain'),
          authorization: fc.constantFrom('Bearer x', 'x', ''),
          'x-request-id': fc.constantFrom('abc', 'a b', 'x'.repeat(200)),
        },
        { requiredKeys: ['content-type'] },
      );
      const query = fc.constantFrom('', '?', '?a=b', '?__proto__=1', '?token=x&token=y', '?%00');
      await fc.assert(
        fc.asyncProperty(body, headers, query, async (sent, given, search) => {
          const init = { method: method.toUpperCase(), headers: given, ...(sent === undefined ? {} : { body: sent }) };
          await checkAnswer(await fetch(`${program.url}${path}${search}`, init), operation);
        }),
        runs(15),
      );
    });
  }
}

test('O-15: after all that the program still lives, and nothing unexpected was logged', async () => {
  assert.equal((await fetch(`${program.url}/readyz`)).status, 200);
  await program.stop();
  assert.equal(program.stderr(), '');
});

function bodyText(schema: JsonSchema): fc.Arbitrary<string> {
  const values = arbitraryFor(dereferenced(schema)).map((value) => JSON.stringify(value) ?? '');
  return fc.oneof({ weight: 9, arbitrary: values }, { weight: 1, arbitrary: fc.string() });
}

async function checkAnswer(response: Response, operation: Operation): Promise<void> {
  const text = await response.text();
  assert.ok(response.status < 500, `${response.status}: ${text}`);
  if (!(response.headers.get('content-type') ?? '').startsWith('application/json') || text === '') return;
  const described = operation.responses[String(response.status)] ?? operation.responses.default;
  const schema = described?.content?.['application/json']?.schema;
  if (schema === undefined) return;
  const value: unknown = JSON.parse(text);
  // A batch of JSON-RPC calls is answered with a list of what a call is answered with.
  for (const part of Array.isArray(value) ? value : [value]) {
    assert.ok(validatorFor(schema).Check(part), `${response.status} is not as described: ${text.slice(0, 500)}`);
  }
}

const validators = new Map<JsonSchema, Validator>();

function validatorFor(schema: JsonSchema): Validator {
  const known = validators.get(schema) ?? Compile(dereferenced(schema));
  validators.set(schema, known);
  return known;
}

/** The schema with everything it refers to in its place. */
function dereferenced(schema: JsonSchema): JsonSchema {
  return JSON.parse(JSON.stringify(schema), (_key, value: unknown) => {
    if (typeof value !== 'object' || value === null || !('$ref' in value)) return value;
    const target = String(value.$ref)
      .split('/')
      .slice(1)
      .reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], document);
    return dereferenced(target as JsonSchema);
  }) as JsonSchema;
}
