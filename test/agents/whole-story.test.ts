import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { runWholeStory, WHOLE_STORY } from '../kit/whole-story-run.ts';
import { realFolder } from './real-agent.ts';

const LIMIT_MS = 220_000;

for (const agent of ['opencode', 'codex']) {
  test(`the whole story holds with a real ${agent}, and leaves nothing behind`, async (t) => {
    const temporaryFolder = await realFolder(t, 'trestle-story-');
    const { code, output } = await runWholeStory({ args: ['--agent', agent], limitMs: LIMIT_MS, temporaryFolder });
    assert.equal(code, 0, output);
    for (const line of WHOLE_STORY) assert.match(output, line);
    assert.ok(output.includes(`\n2. ${agent} at work`), output);
    assert.ok(output.includes(`\nThe whole story holds: 5 steps with ${agent}, `), output);
    assert.deepEqual(
      readdirSync(temporaryFolder).filter((name) => name.startsWith('trestle-')),
      [],
    );
  });
}
