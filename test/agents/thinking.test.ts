import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { type InstalledWorld, startInstalledWorld, TOKEN } from './installed-world.ts';
import { newestFirst } from './real-agent.ts';

/**
 * What the model gets for the levels that a person chooses one after the other; the last one takes the choice back. Kimi Code
 * knows no more of our models than that they think, and sends no effort with some first requests. Codex has no way to take an
 * effort away again.
 */
const ROWS = [
  { id: 'builtin', first: undefined, chosen: { high: 'high', low: 'low', '': undefined } },
  { id: 'codex', first: undefined, chosen: { high: 'high', low: 'low', '': 'medium' } },
  { id: 'claude', first: 'high', chosen: { low: 'low', medium: 'medium', '': 'high' } },
  { id: 'kimi', chosen: { on: 'medium', off: undefined, '': 'medium' } },
  { id: 'opencode', first: 'medium', chosen: { high: 'high', low: 'low', '': 'medium' } },
] as const;

/** Qwen Code offers levels for models of its own list only, and Gemini CLI offers none at all. */
const WITHOUT = ['qwen', 'gemini'];

const { program: BUBBLEWRAP, missing } = await findBubblewrap();
const scope = newestFirst({ after });
let world: InstalledWorld;

before(async () => {
  if (missing === false) {
    world = await startInstalledWorld(scope, { sandbox: 'require', sandbox_program: BUBBLEWRAP });
  }
});

async function openSession(id: string) {
  const folder = join(world.home, id);
  await mkdir(folder, { recursive: true });
  const { url } = world.program();
  return {
    /** Says a word, and returns the efforts of the requests for it: agents also ask for titles and the like. */
    async say(method: string, word: string): Promise<readonly (string | undefined)[]> {
      const params = { sessionId: id, workingDirectory: folder, routing: { explicitProviderId: id } };
      const { answer } = callBridge(url, method, { ...params, taskPrompt: `SAY ${word}` }, TOKEN);
      const { result } = await answer;
      assert.equal(result?.output, `Here is ${word} from upstream-model.`, JSON.stringify(await answer));
      const asked = world.model.requests.filter(
        ({ userTexts, toolNames }) => toolNames.length > 0 && userTexts.some((text) => text.includes(`SAY ${word}`)),
      );
      assert.ok(asked.length > 0);
      return asked.map(({ effort }) => effort);
    },
    async call(method: string, body?: object) {
      const response = await fetch(`${url}/api/bridge/sessions/${id}`, {
        method,
        headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      // biome-ignore lint/suspicious/noExplicitAny: answers of our own routes, which have tests of their own
      return { status: response.status, body: (await response.json()) as any };
    },
  };
}

for (const { id, chosen, ...row } of ROWS) {
  test(`${id}: the model thinks as much as a person has chosen`, { skip: missing }, async () => {
    const { say, call } = await openSession(id);
    const begun = new Set(await say('session.start', `${id}Begins`));
    if ('first' in row) assert.deepEqual(begun, new Set([row.first]));
    const offered: { id: string }[] = (await call('GET')).body.thinkingLevels;
    for (const [index, [thinking, effort]] of Object.entries(chosen).entries()) {
      assert.ok(thinking === '' || offered.some((level) => level.id === thinking), JSON.stringify(offered));
      const changed = await call('PATCH', { thinking });
      assert.equal(changed.status, 200, JSON.stringify(changed.body));
      assert.equal((await call('GET')).body.thinking, thinking);
      const word = `${id}${index}`;
      assert.deepEqual(new Set(await say('session.message', word)), new Set([effort]), `thinking "${thinking}"`);
    }
    const refused = await call('PATCH', { thinking: 'furious' });
    assert.deepEqual([refused.status, refused.body.error], [400, 'unknown_thinking']);
  });
}

for (const id of WITHOUT) {
  test(`${id}: offers no levels of thinking, and a choice is refused`, { skip: missing }, async () => {
    const { say, call } = await openSession(id);
    await say('session.start', `${id}Begins`);
    assert.deepEqual((await call('GET')).body.thinkingLevels, []);
    const refused = await call('PATCH', { thinking: 'high' });
    assert.deepEqual([refused.status, refused.body.error], [400, 'unknown_thinking']);
    assert.match(refused.body.message, /Its levels: none\.$/);
  });
}
