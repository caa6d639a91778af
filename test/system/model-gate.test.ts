import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { type TestContext, test } from 'node:test';
import { createModelAccess, createModelGate, type FencedPrograms } from '../../src/system/agent-sandbox.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';

/** The gate of the networks of two people, and what reaches the program behind it. */
async function startGate(t: TestContext) {
  const seen: IncomingHttpHeaders[] = [];
  const program = await listenOnLoopback(
    createServer((request, response) => {
      seen.push(request.headers);
      response.end('{}');
    }),
  );
  const programs: FencedPrograms = new Map();
  const gate = createModelGate({
    url: () => program.url,
    keyOf: ({ owner }) => `key of ${owner}`,
    programs,
    tools: () => undefined,
  });
  let network = 'user:ann';
  const entrance = await listenOnLoopback(createServer((request, response) => gate(network, request, response)));
  for (const server of [program, entrance]) t.after(() => server.close());
  const ended: string[] = [];
  const completions = {
    keyForProgram: () => ({
      key: 'key of the process',
      meter: () => () => 1,
      follow: () => undefined,
      end: () => void ended.push('key'),
    }),
  };
  const access = createModelAccess({ url: () => program.url, planned: '' }, completions, programs);
  /** The credential that a call arrives with. */
  const arriving = async (headers: Readonly<Record<string, string>>, from = 'user:ann') => {
    network = from;
    await (await fetch(`${entrance.url}/v1/models`, { headers })).text();
    const { authorization, 'x-api-key': key, 'x-goog-api-key': google } = seen.at(-1) ?? {};
    return [authorization, key, google].filter((one) => one !== undefined).join(' and ');
  };
  return { access, arriving, ended };
}

test('a program in the sandbox is told apart by a word that opens nothing itself', async (t) => {
  const { access, arriving, ended } = await startGate(t);
  const models = access({ owner: 'user:ann' }, true);
  assert.ok(models !== undefined && !models.key.includes('key of the process'));
  assert.equal(models.meter?.()(), 1);
  for (const headers of [
    { authorization: `Bearer ${models.key}` },
    { 'x-api-key': models.key },
    { 'x-goog-api-key': models.key },
  ]) {
    assert.equal(await arriving(headers), 'Bearer key of the process');
  }
  assert.equal(await arriving({ authorization: 'Bearer anything' }), 'Bearer key of user:ann');
  assert.equal(await arriving({ authorization: `Bearer ${models.key}` }, 'user:bob'), 'Bearer key of user:bob');
  models.end();
  assert.deepEqual(ended, ['key']);
  assert.equal(await arriving({ authorization: `Bearer ${models.key}` }), 'Bearer key of user:ann');
});
