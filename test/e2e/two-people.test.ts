import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { runExample } from '../kit/example-run.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { timeLimit } from '../kit/time.ts';

/** What must be told; the example itself checks what it tells. */
const TOLD: readonly RegExp[] = [
  /^1\. A new program with both tokens, and its set-up link$/m,
  /^ {3}ok {2}nobody registers without an invitation$/m,
  /^ {3}ok {2}the agent of Ann says "Hello from Ann"$/m,
  /^ {3}ok {2}the agent of Ben says "Hello from Ben"$/m,
  /^ {3}ok {2}\d+ of 30 requests of the plan "small" are left$/m,
  /^ {3}ok {2}\d+ of 300 requests of the plan "large" are left$/m,
  /^ {3}ok {2}the plan "small" allows Ann one job at a time$/m,
  /^ {3}ok {2}Ann sees own work only$/m,
  /^ {3}ok {2}Ben sees own work only$/m,
  /^ {3}ok {2}the administrator sees the work of both$/m,
  /^ {3}the turn ended after \d+ ms: cancelled$/m,
  /^ {3}the turn of the program ended after \d+ ms: cancelled$/m,
  /^ {3}the program ended after \d+ ms: gone$/m,
  /^ {3}the stream ended after \d+ ms: invalid_api_key$/m,
  /^ {3}the socket ended after \d+ ms: 1008$/m,
  /^ {3}the last of his jobs ended after \d+ ms: failed$/m,
  /^ {3}ok {2}his 3 jobs failed, those that waited included$/m,
  /^ {3}ok {2}his token opens nothing any more$/m,
  /^ {3}ok {2}Ann works on$/m,
  /^ {3}ok {2}his login has ended$/m,
  /^ {3}ok {2}he cannot log in again$/m,
  /\nTwo people, apart: 5 steps, \d+\.\d s\n$/,
];

test('two people work on one program apart from each other, and a pause ends everything of one', async (t) => {
  const folder = await temporaryFolder(t);
  // A second; on a machine that is busy with other things, longer by as much as they take.
  const args = ['--within', (timeLimit(1000) / 1000).toFixed(2)];
  const { code, output } = await runExample({
    ...{ example: 'two-people', args, limitMs: 110_000, temporaryFolder: folder },
  });
  assert.equal(code, 0, output);
  for (const line of TOLD) assert.match(output, line);
  assert.doesNotMatch(output, /tpt_\w{8}/, 'no token is printed');
  assert.deepEqual(readdirSync(folder), []);
});
