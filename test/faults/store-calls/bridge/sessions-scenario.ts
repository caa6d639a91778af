import { bearer, openClient } from '../../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createMemoryChannels } from '../../../kit/memory-channel.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge, passing, passUntilStored, readAnswer } from './ask-bridge.ts';

const TALK = 'talk';
const THREAD = 'thread of both';
const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);

/** Turns that are repeated, taken up again, followed; sessions of others and of threads; an editor; the end of a session. */
export const sessionsScenario: Scenario = {
  name: 'sessions',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const agent = createScriptedProvider('one');
    const { url, database, bridge, root } = await startBridge(stage.scope, {
      providers: [agent],
      isGuarded: true,
      clock,
    });
    const ask = createAskBridge(url, clock);
    stage.watch(database);

    const { query } = database;
    const turnsOf = async (prompt: string) =>
      query.selectFrom('turns').selectAll().where('prompt', '=', JSON.stringify(prompt)).execute();
    const openTurns = () => query.selectFrom('turns').select('prompt').where('ended_at', 'is', null).execute();
    const pause = () => passUntilStored(clock, async () => (await openTurns()).length === 0);
    const turn = (method: string, params: { sessionId: string; taskPrompt: string }, headers = main, more = {}) =>
      stage.step({
        name: `${method}: ${params.taskPrompt}`,
        ask: () => ask(method, { threadId: THREAD, ...params }, { ...headers, ...more }),
        stored: async () => storedOf((await turnsOf(params.taskPrompt)).some(({ status }) => status === 'completed')),
        pause,
      });

    await turn('session.start', { sessionId: TALK, taskPrompt: 'one two' });
    await turn('session.message', { sessionId: TALK, taskPrompt: 'three' });
    await turn('session.start', { sessionId: 'of review', taskPrompt: 'four' }, review);
    await turn('session.message', { sessionId: 'of review', taskPrompt: 'five' });

    const once = { 'idempotency-key': 'once' };
    const first = await turn('session.message', { sessionId: TALK, taskPrompt: 'six' }, main, once);
    const again = await turn('session.message', { sessionId: TALK, taskPrompt: 'six' }, main, once);
    stage.note({ kind: 'fact', name: 'a turn that was repeated is one', wanted: first?.turnId, found: again?.turnId });
    const ended = (await turnsOf('six')).filter(({ status }) => status === 'completed').length;
    stage.note({ kind: 'fact', name: 'times that a repeated turn was done', wanted: 1, found: ended });
    const resumed = await turn('session.start', { sessionId: TALK, taskPrompt: 'one two' }, main, {
      'last-event-id': '1',
    });
    stage.note({ kind: 'fact', name: 'a turn that was taken up', wanted: 'one two', found: resumed?.output });

    await stage.step({
      name: 'a client that follows from the beginning on',
      async ask(): Promise<Asked<unknown>> {
        const client = await openClient(stage.scope, url, { headers: main, query: `sessionId=${TALK}&afterSeq=0` });
        const seen = client.seen(({ seq }) => seq === 1).then(() => '');
        const closed = client.closed().then((code) => (code === 1011 ? 'storage_unavailable' : `closed with ${code}`));
        const code = await passing(clock, Promise.race([seen, closed]));
        client.socket.close();
        return { code, problems: [] };
      },
    });
    await stage.step({ name: 'an editor that takes it up', ask: () => askEditor(), pause });
    await stage.step({
      name: 'a cancel of the thread',
      ask: () => ask('session.cancel', { threadId: THREAD }, main),
      pause,
    });
    for (const sessionId of [TALK, 'of review']) {
      await stage.step({
        name: `the end of ${sessionId}`,
        ask: () => ask('session.close', { sessionId }, main),
        async stored() {
          const [row] = await query.selectFrom('sessions').selectAll().where('session_id', '=', sessionId).execute();
          return storedOf(row?.closed_at !== null, row?.reference === '');
        },
        pause,
      });
    }
    await stage.step({
      name: 'a message to what was closed',
      ask: () => ask('session.message', { sessionId: TALK, taskPrompt: 'seven' }, main),
      refusal: 'session_continuation_unavailable',
      pause,
    });
    await turn('session.start', { sessionId: TALK, taskPrompt: 'anew' });
    stage.mend();
    await pause();
    stage.note({ kind: 'fact', name: 'turns that were never ended', wanted: [], found: await openTurns() });

    async function askEditor(): Promise<Asked<unknown>> {
      const [ours, theirs] = createMemoryChannels();
      await bridge.acceptStdio(ours, '');
      const { promise, resolve } = Promise.withResolvers<string>();
      theirs.onMessage((text) => {
        if ('id' in JSON.parse(text)) resolve(text);
      });
      const params = { sessionId: TALK, cwd: root };
      theirs.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session/load', params }));
      const answer = JSON.parse(await passing(clock, promise));
      theirs.close();
      // Editors get plain JSON-RPC.
      const { code, told } = readAnswer(answer);
      return { told, code, problems: [] };
    }
  },
};
