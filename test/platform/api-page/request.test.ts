import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import fc from '../../kit/properties.ts';
import { browserModule, operationOf, type RequestValues } from './browser-modules.ts';

const { buildRequest, curlCommand, missingParameters } = await browserModule('request');
const ORIGIN = 'http://localhost:1';
const text = { type: 'string' };
const json = { content: { 'application/json': {} } };

function valuesOf(values: Partial<RequestValues> = {}): RequestValues {
  return { parameters: {}, body: undefined, eventStream: false, ...values };
}

/** The words that a real shell hands to `curl`, which is a function here; it finds no other program. */
function shellWords(command: string, token = 'the token'): string[] {
  const script = `curl() { for word in "$@"; do printf '%s\\0' "$word"; done; }\n${command}\n`;
  const output = execFileSync('/bin/sh', ['-c', script], {
    env: { TOKEN: token, PATH: '/nowhere' },
    encoding: 'utf8',
    timeout: 10_000,
  });
  return output.split('\0').slice(0, -1);
}

test('path parameters are encoded; only the rest of a path keeps its slashes', () => {
  const one = operationOf({
    path: '/keys/{id}',
    parameters: [{ name: 'id', in: 'path', required: true, schema: text }],
  });
  const parameters = { id: 'a b/c?d#é' };
  assert.equal(buildRequest(one, valuesOf({ parameters }), ORIGIN).url, `${ORIGIN}/keys/a%20b%2Fc%3Fd%23%C3%A9`);
  const rest = operationOf({
    path: '/files/{path}',
    parameters: [{ name: 'path', in: 'path', required: true, schema: text, 'x-multi-segment': true }],
  });
  assert.equal(
    buildRequest(rest, valuesOf({ parameters: { path: 'a b/c?d' } }), ORIGIN).url,
    `${ORIGIN}/files/a%20b/c%3Fd`,
  );
});

test('query parameters are added when they have a value', () => {
  const operation = operationOf({
    path: '/notes',
    parameters: ['a', 'b', 'c'].map((name) => ({ name, in: 'query', required: false, schema: text })),
  });
  const { url } = buildRequest(operation, valuesOf({ parameters: { a: 'x&y=z', b: '', c: '0' } }), ORIGIN);
  assert.equal(url, `${ORIGIN}/notes?a=x%26y%3Dz&c=0`);
  assert.equal(buildRequest(operation, valuesOf(), ORIGIN).url, `${ORIGIN}/notes`);
});

test('a body goes with its media type, a wish for a stream with the Accept header', () => {
  const operation = operationOf({ method: 'POST', requestBody: json });
  assert.deepEqual(buildRequest(operation, valuesOf({ body: '{}', eventStream: true }), ORIGIN), {
    method: 'POST',
    url: `${ORIGIN}/`,
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: '{}',
  });
  assert.deepEqual(buildRequest(operationOf(), valuesOf(), ORIGIN).headers, {});
});

test('required parameters without a value are named', () => {
  const parameters = [true, false].map((required) => ({
    name: `required-${required}`,
    in: 'query' as const,
    required,
    schema: text,
  }));
  const operation = operationOf({ parameters });
  assert.deepEqual(missingParameters(operation, valuesOf()), ['required-true']);
  assert.deepEqual(missingParameters(operation, valuesOf({ parameters: { 'required-true': 'x' } })), []);
});

test('the curl command is the request, and reads the token from the environment', () => {
  const operation = operationOf({ method: 'POST', path: '/notes', requestBody: json });
  const request = buildRequest(operation, valuesOf({ body: `{"a":\n "it's"}`, eventStream: true }), ORIGIN);
  const command = curlCommand(request, true);
  assert.deepEqual(shellWords(command, 'a "b" $c'), [
    '-N',
    '-X',
    'POST',
    `${ORIGIN}/notes`,
    '-H',
    'content-type: application/json',
    '-H',
    'accept: text/event-stream',
    '-H',
    'authorization: Bearer a "b" $c',
    '--data-raw',
    `{"a":\n "it's"}`,
  ]);
  assert.deepEqual(shellWords(curlCommand(buildRequest(operationOf(), valuesOf(), ORIGIN), false)), [`${ORIGIN}/`]);
});

test('nothing in a body or an address is run or changed by the shell', () => {
  const hostile = [
    "'; touch /tmp/never; '",
    '$(id) `id` $HOME $TOKEN !! \\',
    "'''",
    '@/etc/passwd',
    "\"\n\n'\\''",
    '-o x',
    '*',
    '~',
    '',
  ];
  for (const body of hostile) {
    const request = { method: 'POST', url: `${ORIGIN}/?${body}`, headers: { 'x-h': body }, body };
    const words = shellWords(curlCommand(request, false));
    assert.deepEqual(words, ['-X', 'POST', `${ORIGIN}/?${body}`, '-H', `x-h: ${body}`, '--data-raw', body]);
  }
});

test('any text goes through the shell unchanged', () => {
  const anyText = fc.string({ unit: 'binary-ascii' }).map((body) => `${body.replaceAll('\0', '')}é😀`);
  const bodies = fc.sample(anyText, { numRuns: 100, seed: 8 });
  const commands = bodies.map((body) => curlCommand({ method: 'GET', url: ORIGIN, headers: {}, body }, false));
  const words = shellWords(commands.join('\n'));
  assert.deepEqual(
    words,
    bodies.flatMap((body) => [ORIGIN, '--data-raw', body]),
  );
});
