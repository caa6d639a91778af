import { join } from 'node:path';
import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { createBuiltinConversationStore } from '../../../../src/bridge/storage/builtin-conversation-store.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { openDatabase } from '../../../../src/platform/database/open-database.ts';
import { scriptedAgent } from '../../../kit/bridge/builtin-agent.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge, passUntilStored } from './ask-bridge.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const TALK = 'talk';
const WATCH = 'keep an eye on it';
/** How often the agent looks whether the conversations of its commands are kept. */
const LOOK_MS = 31_000;
/** Two of these are more than a conversation keeps. */
const LONG = JSON.stringify({ role: 'user', content: 'x'.repeat(2.5 * 1024 * 1024) });

/** Conversations of the built-in agent: begun, continued, cut, removed. */
export const conversationsScenario: Scenario = {
  name: 'conversations',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const file = join(await temporaryFolder(stage.scope), 'bridge.db');
    const location = { engine: 'sqlite', file } as const;
    const definition = { name: 'bridge', migrations: bridgeMigrations };
    const database = await openDatabase<BridgeSchema>({ ...definition, location, clock: systemClock });
    const { query } = database;
    const conversations = createBuiltinConversationStore(database);
    let looks = 0;
    const store = {
      ...conversations,
      async has(conversationId: string) {
        looks += 1;
        return conversations.has(conversationId);
      },
    };
    const command = { name: 'start_command', input: { command: 'sleep', args: ['60'] } };
    const { agent, requests } = scriptedAgent(
      (index, { messages }) =>
        JSON.stringify(messages.at(-1)).includes(WATCH) ? { calls: [command] } : { text: [`answer ${index}`] },
      { store, clock },
    );
    const { url } = await startBridge(stage.scope, { providers: [agent], clock, database });
    const ask = createAskBridge(url, clock);
    const rest = createAskWorkbench(url, clock);
    stage.watch(database);

    const allMessages = () => query.selectFrom('builtin_messages').selectAll().orderBy('position').execute();
    let copied: readonly string[] = [];
    const messages = async () =>
      (await allMessages()).filter(({ conversation_id: id }) => copied.length === 0 || copied.includes(id));
    const openTurns = () => query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    const pause = () => passUntilStored(clock, async () => (await openTurns()).length === 0);
    const say = async (method: string, taskPrompt: string) => {
      await stage.step({
        name: `${method}: ${taskPrompt}`,
        async ask() {
          const asked = await ask(method, { sessionId: TALK, taskPrompt });
          // The agent could not store what was said: its turn has failed, and can be asked for again.
          return asked.code === 'agent_failed' ? { ...asked, code: 'storage_unavailable' } : asked;
        },
        async stored() {
          const bodies = (await messages()).map(({ body }) => JSON.parse(body) as { readonly content: unknown });
          return bodies.some(({ content }) => content === taskPrompt) ? 'whole' : 'none';
        },
        pause,
      });
    };

    await say('session.start', 'hello');
    await say('session.message', 'again');
    await stage.aside(async () => {
      await query.updateTable('builtin_messages').set({ body: LONG }).where('position', 'in', [0, 1]).execute();
    });
    await say('session.message', 'after much was said');
    const left = await messages();
    stage.note({ kind: 'fact', name: 'what is too long is gone', wanted: true, found: (left[0]?.position ?? 0) > 0 });
    const asked = JSON.stringify(requests.at(-1));
    stage.note({
      kind: 'fact',
      name: 'the model is told the last prompt',
      wanted: true,
      found: asked.includes('after much'),
    });

    await say('session.message', WATCH);
    // While rules cannot be read, no command is run.
    if (JSON.stringify(requests.at(-1)).includes('does not permit this')) await say('session.message', WATCH);
    await passUntil(clock, LOOK_MS, 'a look at the conversations of commands', async () => looks > 0);
    copied = [...new Set((await messages()).map(({ conversation_id: id }) => id))];
    await stage.step({
      name: 'a copy',
      ask: () => rest('POST', `sessions/${TALK}/fork`, { body: {} }),
      async stored() {
        const others = (await allMessages()).filter(({ conversation_id: id }) => !copied.includes(id));
        return storedOf(others.length > 0);
      },
      pause,
    });
    await stage.step({ name: 'the end of the session', ask: () => ask('session.close', { sessionId: TALK }), pause });
    const areGone = async () => (await messages()).length === 0;
    await passUntil(clock, 1000, 'the conversation to be removed', areGone).catch(() => undefined);
    stage.mend();
    const kept = (await messages()).length;
    stage.note({ kind: 'fact', name: 'messages of a session that was closed', wanted: 0, found: kept });
  },
};
