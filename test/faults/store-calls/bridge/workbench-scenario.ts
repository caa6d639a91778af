import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../../kit/scripted-provider.ts';
import { until } from '../../../kit/until.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge } from './ask-bridge.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const TALK = 'talk';
const ENDLESS = 'work on';
const LONG = 'say much';
/** Two of these are more than one outcome holds. */
const PART = 'x'.repeat(2_100_000);

const script: TurnScript = async (turn) => {
  const { prompt, workingDirectory, report } = turn;
  if (prompt === ENDLESS) return endless(turn);
  if (prompt === LONG) {
    report({ kind: 'text', text: PART });
    report({ kind: 'text', text: PART });
    return { kind: 'completed', output: `${PART}${PART}`, stopReason: 'end_turn' };
  }
  const path = join(workingDirectory, 'notes.txt');
  await writeFile(path, prompt);
  const tool = {
    toolCallId: path,
    title: 'edit',
    status: 'completed',
    toolKind: 'edit',
    locations: [{ path }],
  } as const;
  report({ kind: 'tool_call', ...tool });
  report({ kind: 'text', text: prompt });
  return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
};

/** What the console shows and changes: the list of sessions, their history, copies of them, what waits. */
export const workbenchScenario: Scenario = {
  name: 'workbench',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const { url, root, database } = await startBridge(stage.scope, {
      providers: [createScriptedProvider('one', script)],
      clock,
    });
    const ask = createAskBridge(url, clock);
    const rest = createAskWorkbench(url, clock);
    const { query } = database;
    stage.watch(database);

    const openTurns = () =>
      query.selectFrom('turns').select(['id', 'status', 'prompt']).where('ended_at', 'is', null).execute();
    const pause = () =>
      passUntil(clock, 2000, 'the turns to be stored', async () => (await openTurns()).length === 0).catch(
        () => undefined,
      );
    const turn = (method: string, sessionId: string, taskPrompt: string) =>
      stage.step({
        name: `${method}: ${taskPrompt}`,
        ask: () =>
          ask(method, { sessionId, taskPrompt, ...(method === 'session.start' && { workingDirectory: root }) }),
        async stored() {
          const rows = await query
            .selectFrom('turns')
            .select('status')
            .where('prompt', '=', JSON.stringify(taskPrompt))
            .execute();
          return storedOf(rows.some(({ status }) => status === 'completed'));
        },
        pause,
      });
    const look = (path: string) => stage.step({ name: `GET ${path}`, ask: () => rest('GET', path) });

    await turn('session.start', TALK, 'one');
    await turn('session.message', TALK, 'two');
    await turn('session.start', 'long', LONG);
    // As 0.1.0 has stored it: without a head, so that all of it is read.
    const outcome = JSON.stringify({ output: 'x'.repeat(100_000) });
    await stage.aside(() => query.updateTable('turns').set({ outcome }).where('prompt', '=', '"two"').execute());
    const [first] = await query.selectFrom('turns').select('id').where('prompt', '=', '"one"').execute();
    for (const path of ['sessions', 'sessions?search=talk', 'sessions?state=running', `sessions/${TALK}`, 'audit']) {
      await look(path);
    }
    for (const path of [
      'turns',
      'updates',
      'updates?afterSeq=0',
      'export?form=markdown',
      'export?form=json',
      'changes',
      `changes?turnId=${first?.id}`,
    ]) {
      await look(`sessions/${TALK}/${path}`);
    }
    const summary = () =>
      query.selectFrom('session_summaries').selectAll().where('session_id', '=', TALK).executeTakeFirst();
    await stage.step({
      name: 'another title',
      ask: () => rest('PATCH', `sessions/${TALK}`, { body: { title: 'Notes' } }),
      stored: async () => storedOf((await summary())?.title === '"Notes"'),
    });
    await stage.step({
      name: 'another model',
      ask: () => rest('PATCH', `sessions/${TALK}`, { body: { model: 'large' } }),
      stored: async () => storedOf((await summary())?.model === 'large'),
    });
    const sessions = async () => (await query.selectFrom('sessions').select('key').execute()).length;
    for (const [name, body] of [
      ['a copy', {}],
      ['a copy of the beginning', { turnId: first?.id }],
    ] as const) {
      const known = await sessions();
      await stage.step({
        name,
        ask: () => rest('POST', `sessions/${TALK}/fork`, { body }),
        stored: async () => storedOf((await sessions()) > known),
      });
    }

    const running = ask('session.message', { sessionId: TALK, taskPrompt: ENDLESS });
    await until('the turn to run or to fail', async () => {
      const ended = await Promise.race([running, undefined]);
      return ended !== undefined || (await openTurns()).some(({ prompt }) => prompt === `"${ENDLESS}"`);
    });
    const queued = ask('session.message', { sessionId: TALK, taskPrompt: 'three' });
    await until('the next turn to wait or to fail', async () => {
      const ended = await Promise.race([queued, undefined]);
      return ended !== undefined || (await openTurns()).some(({ status }) => status === 'queued');
    });
    const shown = await look(`sessions/${TALK}`);
    const waiting: readonly { readonly turnId: string }[] = shown?.queued ?? [];
    for (const { turnId } of waiting) {
      await stage.step({
        name: 'a turn that is taken back',
        ask: () => rest('DELETE', `sessions/${TALK}/turns/${turnId}`),
        whenDone: ['turn_not_waiting', 'turn_not_found'],
      });
    }
    await stage.step({ name: 'a cancel', ask: () => ask('session.cancel', { sessionId: TALK }) });
    await pause();
    await Promise.all([running, queued]);
    stage.mend();
    const open = (await openTurns()).map(({ prompt }) => prompt);
    stage.note({ kind: 'fact', name: 'turns that were never ended', wanted: [], found: open });
  },
};
