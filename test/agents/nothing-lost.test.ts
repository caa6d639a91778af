import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { NOTHING_LOST, runExample } from '../kit/example-run.ts';
import { realFolder } from './real-agent.ts';

const LIMIT_MS = 220_000;

for (const agent of ['opencode', 'codex']) {
  test(`nothing is lost with a real ${agent}, and leaves nothing behind`, async (t) => {
    const temporaryFolder = await realFolder(t, 'trestle-story-');
    const { code, output } = await runExample({
      example: 'nothing-lost',
      args: ['--agent', agent],
      limitMs: LIMIT_MS,
      temporaryFolder,
    });
    assert.equal(code, 0, output);
    for (const line of NOTHING_LOST) assert.match(output, line);
    assert.ok(output.includes(`\n2. ${agent} at work`), output);
    assert.ok(output.includes(`\nNothing was lost: 5 steps with ${agent}, `), output);
    assert.deepEqual(
      readdirSync(temporaryFolder).filter((name) => name.startsWith('trestle-')),
      [],
    );
  });
}
