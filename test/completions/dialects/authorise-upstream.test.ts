import assert from 'node:assert/strict';
import { createHash, createHmac } from 'node:crypto';
import { test } from 'node:test';
import type { ApiCredentials } from '../../../src/completions/dialects/authorise-upstream.ts';
import { createAuthoriseUpstream } from '../../../src/completions/dialects/authorise-upstream.ts';
import type { DialectName } from '../../../src/completions/dialects/dialect.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const clock = createFakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
const authorise = createAuthoriseUpstream({
  clock,
  fetch: () => Promise.reject(new Error('nothing is fetched here')),
  readFile: () => Promise.reject(new Error('nothing is read here')),
});

const headers = { 'content-type': 'application/json' };
const url = 'https://example.com/v1/x';

async function added(
  dialect: DialectName,
  credentials: ApiCredentials,
  address = url,
): Promise<Record<string, string>> {
  const { 'content-type': kept, ...rest } = await authorise({
    dialect,
    credentials,
    url: address,
    headers,
    body: '{}',
  });
  assert.equal(kept, 'application/json', 'the headers of the call stay');
  return rest;
}

test('each dialect has its own header for a key', async () => {
  const key = 'k-1';
  assert.deepEqual(await added('openai', { key }), { authorization: 'Bearer k-1' });
  assert.deepEqual(await added('cohere', { key }), { authorization: 'Bearer k-1' });
  assert.deepEqual(await added('anthropic', { key }), { 'x-api-key': 'k-1' });
  assert.deepEqual(await added('google', { key }), { 'x-goog-api-key': 'k-1' });
  assert.deepEqual(await added('azure', { key }), { 'api-key': 'k-1' });
  assert.deepEqual(await added('azure', { key: 'eyJhbGciOi.x.y' }), { authorization: 'Bearer eyJhbGciOi.x.y' });
  assert.deepEqual(await added('bedrock', { key }), { authorization: 'Bearer k-1' });
  assert.deepEqual(await added('google-vertex', { key: 'ya29.token' }), { authorization: 'Bearer ya29.token' });
  assert.deepEqual(await added('google-vertex', { key: 'AIzaSyExpress' }), { 'x-goog-api-key': 'AIzaSyExpress' });
});

test('an API without a key gets no header', async () => {
  for (const dialect of ['openai', 'cohere', 'anthropic', 'google', 'azure', 'bedrock', 'google-vertex'] as const) {
    assert.deepEqual(await added(dialect, { key: '' }), {}, dialect);
  }
});

test('a key needs no waiting', () => {
  const given = authorise({ dialect: 'openai', credentials: { key: 'k' }, url, headers, body: '' });
  assert.ok(!(given instanceof Promise));
});

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();

test('a request to Bedrock is signed as AWS describes it', async () => {
  const address = 'https://bedrock-runtime.eu-west-1.amazonaws.com/model/anthropic.claude-v1%3A0/converse';
  const aws = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret', sessionToken: 'session' };
  const body = '{"messages":[]}';
  const given = { 'content-type': 'application/json', accept: 'application/json' };
  const signed = await authorise({
    dialect: 'bedrock',
    credentials: { key: '', aws },
    url: address,
    headers: given,
    body,
  });

  // The path is encoded once more than it is sent, and the type of the content is not part of the signature.
  const canonical = [
    'POST',
    '/model/anthropic.claude-v1%253A0/converse',
    '',
    'accept:application/json',
    'host:bedrock-runtime.eu-west-1.amazonaws.com',
    'x-amz-date:20260102T030405Z',
    'x-amz-security-token:session',
    '',
    'accept;host;x-amz-date;x-amz-security-token',
    sha256(body),
  ].join('\n');
  const scope = '20260102/eu-west-1/bedrock/aws4_request';
  const text = ['AWS4-HMAC-SHA256', '20260102T030405Z', scope, sha256(canonical)].join('\n');
  const key = ['eu-west-1', 'bedrock', 'aws4_request'].reduce(hmac, hmac('AWS4secret', '20260102'));
  assert.equal(
    signed.authorization,
    `AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/${scope}, ` +
      `SignedHeaders=accept;host;x-amz-date;x-amz-security-token, Signature=${hmac(key, text).toString('hex')}`,
  );
  assert.equal(signed['x-amz-date'], '20260102T030405Z');
  assert.equal(signed['x-amz-security-token'], 'session');
  assert.equal(signed['content-type'], 'application/json');
});

test('the region of a signature is the configured one, and a bearer token goes before a signature', async () => {
  const aws = { accessKeyId: 'AKID', secretAccessKey: 's' };
  const own = await added(
    'bedrock',
    { key: '', aws, region: 'us-west-2' },
    'https://vpce.example.com/model/x/converse',
  );
  assert.match(own.authorization ?? '', /\/us-west-2\/bedrock\//);
  const token = await added('bedrock', { key: 'token', aws });
  assert.deepEqual(token, { authorization: 'Bearer token' });
});
