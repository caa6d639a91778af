import assert from 'node:assert/strict';
import { test } from 'node:test';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import { createSteps } from '../../../src/completions/dialects/dialect.ts';
import { googleDialect } from '../../../src/completions/dialects/google/google-dialect.ts';
import { googleSchema } from '../../../src/completions/dialects/google/google-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { startDialectUpstreams } from '../../kit/completions/dialect-upstreams.ts';
import { ask, contextFor } from './read-stream.ts';

/** Each of its members is the whole again: written out, it never ends. */
function selfReferring(members: number): object {
  const names = Array.from({ length: members }, (_, index) => `m${index}`);
  return {
    type: 'object',
    properties: { a: { $ref: '#/$defs/a' } },
    $defs: {
      a: { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { $ref: '#/$defs/a' }])) },
    },
  };
}

function encodeTool(parameters: object, model: string) {
  const tools = [{ type: 'function', function: { name: 'f', parameters } }];
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  const { body, dropped } = googleDialect.encodeRequest(ask({ tools }), contextFor(model)) as any;
  return { declaration: body.tools[0].functionDeclarations[0], dropped };
}

function isTooComplex(error: unknown): boolean {
  return error instanceof AppError && error.code === 'REQUEST_TOO_COMPLEX';
}

test('DC-1: a schema that refers to itself goes to Gemini as JSON Schema, in linear time', () => {
  for (const model of ['gemini-2.5-flash', 'gemini-3-pro-preview', 'gemini-flash-latest']) {
    const { declaration, dropped } = encodeTool(selfReferring(16), model);
    assert.deepEqual(declaration, { name: 'f', parametersJsonSchema: selfReferring(16) });
    assert.deepEqual(dropped, []);
  }
});

test('DC-1: where references must be written out, one inside of itself ends and is named', () => {
  const { declaration, dropped } = encodeTool(selfReferring(16), 'gemini-2.0-flash');
  assert.ok(JSON.stringify(declaration).length < 5000);
  assert.deepEqual(dropped, ['tools.function.parameters.$ref']);
});

test('DC-1: references that double with every level are refused, and so is a list of the same type', () => {
  const levels = 40;
  const $defs = Object.fromEntries(
    Array.from({ length: levels }, (_, index) => {
      const next = { $ref: `#/$defs/d${index + 1}` };
      return [`d${index}`, { type: 'object', properties: { a: next, b: next } }];
    }),
  );
  assert.throws(() => googleSchema({ $ref: '#/$defs/d0', $defs }), isTooComplex);
  let repeated: object = { type: 'string' };
  for (let level = 0; level < 30; level += 1) {
    repeated = { type: ['object', 'object', 'object'], properties: { a: repeated } };
  }
  assert.ok(JSON.stringify(googleSchema(repeated)).length < 5000);
});

test('DC-1: a JSON Schema for Gemini has nothing beside a reference, and its definitions where Gemini looks', () => {
  const { declaration } = encodeTool(
    {
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      properties: { point: { $ref: '#/definitions/point', description: 'Where.' }, kind: { const: 3 } },
      definitions: { point: { type: 'object', properties: { x: { type: 'number' } } } },
    },
    'gemini-2.5-flash',
  );
  assert.deepEqual(declaration.parametersJsonSchema, {
    type: 'object',
    properties: { point: { anyOf: [{ $ref: '#/$defs/point' }], description: 'Where.' }, kind: { enum: [3] } },
    $defs: { point: { type: 'object', properties: { x: { type: 'number' } } } },
  });
});

test('DC-1: the request of 344 bytes that stopped the program is answered, and one that is too complex gets a 400', async (t) => {
  const { completions, script, requests } = await startDialectUpstreams(t);
  script((response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const answer = { candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] };
    response.end(JSON.stringify(answer));
  });
  const post = (model: string, parameters: object) =>
    completions.post('/v1/chat/completions', {
      model,
      messages: [{ role: 'user', content: 'x' }],
      tools: [{ type: 'function', function: { name: 'f', parameters } }],
    });
  const fine = await post('lab-google/gemini-2.5-flash', selfReferring(16));
  assert.equal(fine.status, 200);
  assert.equal(requests.length, 1);
  const wide = Object.fromEntries(Array.from({ length: 50_001 }, (_, index) => [`m${index}`, { type: 'string' }]));
  const refused = await post('lab-google/gemini-2.5-flash', { type: 'object', properties: wide });
  assert.equal(refused.status, 400);
  const { error } = (await refused.json()) as { error: { code: string; message: string } };
  assert.equal(error.code, 'request_too_complex');
  assert.match(error.message, /more than 50000 members/);
});

test('DC-2: thinking with many proofs is placed in linear time, and past the limit the request is refused', () => {
  const request = (proofs: number) =>
    ask({
      messages: [
        { role: 'user', content: 'x' },
        {
          role: 'assistant',
          content: 'b'.repeat(proofs),
          reasoning_content: 'a'.repeat(proofs),
          reasoning_signature: Array.from({ length: proofs }, (_, index) => `claude:t1@${index}:s;`).join(''),
        },
        { role: 'user', content: 'y' },
      ],
    });
  const context = contextFor('claude-sonnet-4-5');
  const { body } = anthropicDialect.encodeRequest(request(40_000), context) as { body: { messages: Json[] } };
  assert.equal(body.messages[1]?.content.length, 80_000);
  assert.throws(() => anthropicDialect.encodeRequest(request(50_001), context), isTooComplex);
});

// biome-ignore lint/suspicious/noExplicitAny: a test looks at any part of a body.
type Json = any;

test('DC-1: a body of too many values is refused before it is parsed', async (t) => {
  const { completions } = await startDialectUpstreams(t);
  const members = Array.from({ length: 200_001 }, (_, index) => `"k${index}":0`).join(',');
  const text = `{"model":"lab-openai/small","messages":[{"role":"user","content":"x"}],"metadata":{${members}}}`;
  const response = await completions.post('/v1/chat/completions', text);
  const { error } = (await response.json()) as { error: { code: string } };
  assert.deepEqual([response.status, error.code], [400, 'request_too_complex']);
});

test('steps are counted up to the limit, and one more is refused', () => {
  const steps = createSteps(3);
  steps.take();
  steps.take(2);
  assert.throws(() => steps.take(), isTooComplex);
});
