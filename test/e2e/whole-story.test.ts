import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { runExample } from '../kit/example-run.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { temporaryFolder } from '../kit/running-program.ts';

/** It starts three instances and waits for one to count as dead: half a minute, on a busy machine several times that. */
const LIMIT_MS = 290_000;
const TEST_LIMIT = { timeout: 300_000 };

/** What must be told; the example itself checks what it tells. */
const TOLD: readonly RegExp[] = [
  /^1\. Three instances on one PostgreSQL, and the first administrator$/m,
  /^2\. Two people with plans$/m,
  /^4\. Ann lets builtin work, and is asked in the console$/m,
  /^5\. Ben lets builtin work, and is asked in the terminal$/m,
  /^ {3}ok {2}the change is shown as a diff$/m,
  /^ {3}ok {2}and undone$/m,
  /^6\. A task for every morning$/m,
  /^ {3}ok {2}its job is completed, and names the commit$/m,
  /^ {3}ok {2}builtin has won$/m,
  /^ {3}ok {2}the work of the winner is merged into main$/m,
  /^ {3}ok {2}after \d+ long reports the next one is refused: insufficient_quota$/m,
  /^ {3}ok {2}Ben works on$/m,
  /^ {3}ok {2}the turn ended as failed, TURN_INTERRUPTED$/m,
  /^ {3}ok {2}with everything that was said before$/m,
  /^ {3}ok {2}and missed none of those that are stored$/m,
  /^ {3}ok {2}together \d+ cents, and the model API says the same$/m,
  /\nThe whole story holds: 11 steps, \d+\.\d s\n$/,
];

test(
  'the whole story holds without a browser, a terminal and the network, and leaves nothing behind',
  TEST_LIMIT,
  async (t) => {
    const postgres = await startPostgres();
    t.after(() => postgres.stop());
    const folder = await temporaryFolder(t);
    const { code, output } = await runExample({
      ...{ example: 'whole-story', args: ['--offline', '--database', postgres.url] },
      ...{ limitMs: LIMIT_MS, temporaryFolder: folder },
    });
    assert.equal(code, 0, output);
    for (const line of TOLD) assert.match(output, line);
    assert.doesNotMatch(output, /tpt_\w{8}/, 'no token is printed');
    assert.deepEqual(readdirSync(folder), []);
  },
);

test('the whole story says what it needs', async (t) => {
  const folder = await temporaryFolder(t);
  const { code, output } = await runExample({
    ...{ example: 'whole-story', args: [], limitMs: 60_000, temporaryFolder: folder },
  });
  assert.equal(code, 1);
  assert.match(output, /--database is missing: give the address of an empty PostgreSQL database/);
});
