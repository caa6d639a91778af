import { setTimeout } from 'node:timers/promises';
import { readForm } from '../../../../src/bridge/agents/question-form.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, type TurnScript } from '../../../kit/scripted-provider.ts';
import { FORM_SCHEMA } from '../../../kit/scripted-work.ts';
import { until } from '../../../kit/until.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge } from './ask-bridge.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const LOOK_MS = 10;
/** So long that no question expires while this machine is busy. */
const SETTINGS = 'bridge: { permission_timeout: 50m }\n';
const FORM = 'fill a form';
const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];
const VALUES = { place: 'live', sure: true };
/** One that was answered, and whose answer was lost; one that ended with its turn. */
const ENDED = ['permission_answered', 'permission_expired'];

/** Asks for permission to run its prompt, or for a form, and says what was answered. */
const script: TurnScript = async ({ prompt, ask, signal }) => {
  const named = { toolCallId: 't', title: `run ${prompt}` };
  const form = readForm(FORM_SCHEMA);
  const question =
    prompt === FORM && form !== undefined
      ? { ...named, toolKind: 'question', options: [], form }
      : { ...named, toolKind: 'execute', input: { command: prompt }, options: OPTIONS };
  const { optionId, values } = (await ask?.(question, signal)) ?? {};
  if (signal.aborted) return { kind: 'cancelled', output: '' };
  return { kind: 'completed', output: `${optionId} ${JSON.stringify(values)}`, stopReason: 'end_turn' };
};

/** Questions of agents that people answer, rules that they make, and questions that nobody answers. */
export const permissionsScenario: Scenario = {
  name: 'permissions',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const { url, root, database } = await startBridge(stage.scope, {
      providers: [createScriptedProvider('one', script)],
      clock,
      settings: SETTINGS,
    });
    const ask = createAskBridge(url, clock);
    const rest = createAskWorkbench(url, clock);
    const { query } = database;
    stage.watch(database);

    const openTurns = () => query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    const rows = () => query.selectFrom('permissions').selectAll().execute();
    const isOpen = async (id: string) => (await rows()).some((row) => row.id === id && row.state === 'open');
    const pause = () =>
      passUntil(clock, 2000, 'the turn to be stored', async () => (await openTurns()).length === 0).catch(
        () => undefined,
      );
    const turnOf = (sessionId: string, taskPrompt: string, method = 'session.start') =>
      ask(method, { sessionId, taskPrompt, workingDirectory: root, routing: { permissions: 'ask' } });

    /** Answers what a turn asks until it ends. A question that could not be stored is denied, and its turn goes on. */
    const answering = (sessionId: string, prompt: string, answer: object) =>
      stage.step({
        name: `a question of ${sessionId}`,
        async ask(): Promise<Asked<unknown>> {
          const problems: string[] = [];
          let isOver = false;
          const turn = turnOf(sessionId, prompt).finally(() => {
            isOver = true;
          });
          while (!isOver) {
            const listed = await rest('GET', 'permissions');
            problems.push(...listed.problems);
            const open: readonly { readonly sessionId: string; readonly permissionId: string }[] =
              listed.told?.permissions ?? [];
            for (const { permissionId } of open.filter((one) => one.sessionId === sessionId)) {
              const answered = await rest('POST', `permissions/${permissionId}/answer`, { body: answer });
              const isFine = ['', 'storage_unavailable', ...ENDED].includes(answered.code);
              problems.push(...answered.problems, ...(isFine ? [] : [`the answer was refused with ${answered.code}`]));
              const isStored = !(await isOpen(permissionId));
              if (isStored)
                await until('the turn to go on', () => isOver).catch((error) => problems.push(String(error)));
              if (isStored && !isOver) await ask('session.cancel', { sessionId });
            }
            await setTimeout(LOOK_MS);
          }
          const asked = await turn;
          return { ...asked, problems: [...asked.problems, ...problems] };
        },
        pause,
      });

    await answering('once', 'make', { optionId: 'yes' });
    await answering('always', 'make all', { optionId: 'yes', scope: 'always' });
    await answering('form', FORM, { values: VALUES });
    await stage.step({ name: 'all questions', ask: () => rest('GET', 'permissions?state=all') });
    const listed = await stage.step({ name: 'the rules', ask: () => rest('GET', 'permission-rules') });
    const rules: readonly { readonly ruleId: string }[] = listed?.rules ?? [];
    for (const { ruleId } of rules) {
      await stage.step({
        name: 'the end of a rule',
        ask: () => rest('DELETE', `permission-rules/${ruleId}`),
        stored: async () => storedOf((await query.selectFrom('permission_rules').select('id').execute()).length === 0),
        whenDone: ['permission_rule_not_found'],
      });
    }
    await stage.step({
      name: 'a question that nobody answers',
      async ask(): Promise<Asked<unknown>> {
        const sessionId = 'cancelled';
        let isOver = false;
        const turn = turnOf(sessionId, 'make').finally(() => {
          isOver = true;
        });
        const isAsked = async () => (await rows()).some((row) => row.session_key !== '' && row.state === 'open');
        while (!isOver && !(await isAsked())) await setTimeout(LOOK_MS);
        const cancelled = await ask('session.cancel', { sessionId });
        if (cancelled.code !== '') await ask('session.cancel', { sessionId });
        const { code, problems } = await turn;
        const all = [...problems, ...cancelled.problems];
        return { code: code === 'turn_cancelled' || code === 'cancelled' ? cancelled.code : code, problems: all };
      },
      pause,
    });
    const areEnded = async () => (await rows()).every(({ state }) => state !== 'open');
    await passUntil(clock, 2000, 'all questions to end', areEnded).catch(() => undefined);
    const areTaken = async () => (await rows()).every(({ given }) => given === '');
    await passUntil(clock, 2000, 'the values to be removed', areTaken).catch(() => undefined);
    stage.mend();
    const open = (await rows()).filter(({ state }) => state === 'open').length;
    stage.note({ kind: 'fact', name: 'questions that are open', wanted: 0, found: open });
    const turns = await query.selectFrom('turns').select(['prompt', 'status']).where('ended_at', 'is', null).execute();
    stage.note({ kind: 'fact', name: 'turns that were never ended', wanted: [], found: turns });
  },
};
