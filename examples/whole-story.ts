// The whole program with checks: three instances on PostgreSQL, set up by their first administrator; two people with
// plans; Claude and Codex, which ask before they act; diff, undo, a schedule, a race in worktrees, a budget that
// is reached, kill -9 of one of three instances, and usage that adds up to the cent.
//   npx node examples/whole-story.ts --database postgres://user:password@host/empty [--offline]
// It needs an empty PostgreSQL database, git, and the npm registry, from which Codex and Claude's adapter are installed. With
// --offline the built-in agent takes their place. The story has its own model: nothing else leaves this machine.
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createTrestleClient } from '../src/client/trestle-client.ts';
import { setUp } from './whole-story/account.ts';
import { perform, say, until } from './whole-story/narration.ts';
import { type Hands, type Task, tellWholeStory } from './whole-story/the-story.ts';

const ASK_LIMIT_MS = 90_000;
const options = { database: { type: 'string' }, offline: { type: 'boolean', default: false } } as const;
const { database = '', offline } = parseArgs({ options }).values;
const cleanUps: (() => unknown)[] = [];

/** Does with the typed client what people do in a browser and in a terminal. */
const hands: Hands = {
  setUp,
  allow,
  async look(moment, url, _account, page) {
    say(`${moment}: see ${url}${page}`);
  },
};

async function allow({ place, url, person, agent, folder, prompt }: Task): Promise<string> {
  const client = createTrestleClient({ url, token: person.token });
  cleanUps.push(() => client.close());
  const sessionId = `asked-in-the-${place}`;
  const routing = { explicitProviderId: agent, permissions: 'ask' } as const;
  const turn = client.session(sessionId).start(prompt, { workingDirectory: folder, routing });
  const question = await until('the agent asks', ASK_LIMIT_MS, async () => {
    const open = await client.permissions.list();
    return open.find((one) => one.sessionId === sessionId);
  });
  say(`${agent} asks: ${question.title}`);
  await client.permissions.answer(question.permissionId, { decision: 'allow' });
  await turn.result;
  return sessionId;
}

await perform(
  cleanUps,
  async () => {
    if (database === '') throw new Error('--database is missing: give the address of an empty PostgreSQL database');
    // Agents compare paths as text.
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-whole-story-')));
    cleanUps.push(() => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
    await tellWholeStory({ database, folder, hasRealAgents: !offline, hands, cleanUps });
  },
  (steps, seconds) => `The whole story holds: ${steps} steps, ${seconds} s`,
);
