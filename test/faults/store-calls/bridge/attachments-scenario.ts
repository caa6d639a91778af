import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, type TurnScript } from '../../../kit/scripted-provider.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge } from './ask-bridge.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const KIB = 1024;
/** There is room for two of them, of uploads and of what turns produce. */
const TEXT = 'y'.repeat(600 * KIB);
const SETTINGS = 'bridge: { limits: { attachment_bytes_per_owner: 1468006, artifact_bytes_per_owner: 1468006 } }\n';

/** Says how long its files are, and produces one. */
const script: TurnScript = async ({ prompt, files = [], workingDirectory, report }) => {
  const lengths = await Promise.all(files.map(async ({ path }) => (await readFile(path, 'utf8')).length));
  const path = join(workingDirectory, `${prompt}.txt`);
  await writeFile(path, TEXT);
  const tool = {
    toolCallId: path,
    title: 'edit',
    status: 'completed',
    toolKind: 'edit',
    locations: [{ path }],
  } as const;
  report({ kind: 'tool_call', ...tool });
  return { kind: 'completed', output: JSON.stringify(lengths), stopReason: 'end_turn' };
};

/** Files for prompts: uploaded, given to turns and jobs, removed to make room and when they are old; and room for what turns produce. */
export const attachmentsScenario: Scenario = {
  name: 'attachments',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const { url, database, folder } = await startBridge(stage.scope, {
      providers: [createScriptedProvider('one', script)],
      clock,
      settings: SETTINGS,
    });
    const ask = createAskBridge(url, clock);
    const rest = createAskWorkbench(url, clock);
    const { query } = database;
    stage.watch(database);

    const uploads = () => query.selectFrom('attachments').selectAll().execute();
    const openTurns = () => query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    const pause = () =>
      passUntil(clock, 2000, 'the turn to be stored', async () => (await openTurns()).length === 0).catch(
        () => undefined,
      );
    const upload = async (name: string): Promise<string> => {
      const known = (await uploads()).map(({ id }) => id);
      const told = await stage.step({
        name: `an upload: ${name}`,
        ask: () => rest('POST', 'attachments', { file: { name, text: TEXT } }),
        stored: async () => storedOf((await uploads()).some(({ id }) => !known.includes(id))),
        // Whoever did not hear of an upload has less room by it.
        whenDone: ['attachments_full'],
      });
      return told?.attachmentId ?? '';
    };
    const use = async (prompt: string, attachmentId: string) => {
      if (attachmentId === '') return;
      const told = await stage.step({
        name: `a turn with ${prompt}`,
        async ask() {
          const params = { sessionId: prompt, taskPrompt: prompt, attachments: [{ attachmentId }] };
          const asked = await ask('session.start', params);
          return asked.code === 'agent_failed' ? { ...asked, code: 'storage_unavailable' } : asked;
        },
        pause,
      });
      const wanted = JSON.stringify([TEXT.length]);
      if (told !== undefined) stage.note({ kind: 'fact', name: 'what the agent has read', wanted, found: told.output });
    };

    const first = await upload('first');
    await use('first', first);
    await use('second', await upload('second'));
    // The oldest that was used makes room.
    await use('third', await upload('third'));
    const last = await upload('fourth');
    if (last !== '') {
      const params = { taskPrompt: 'job', attachments: [{ attachmentId: last }], timeoutMs: DAY_MS };
      await stage.step({
        name: 'a job with a file',
        ask: () => ask('app.jobs.submit', { ...params, idempotencyKey: 'once' }),
      });
    }
    const jobs = () => query.selectFrom('jobs').select('completed_at').execute();
    const areEnded = async () => (await jobs()).every(({ completed_at: at }) => at !== null);
    await passUntil(clock, 1000, 'the job to end', areEnded);
    clock.stepWall(5 * DAY_MS);
    const left = async () =>
      (await uploads()).length + (await readdir(join(folder, 'attachments')).catch(() => [])).length;
    await passUntil(clock, 11 * MINUTE_MS, 'the uploads to be removed', async () => (await left()) === 0).catch(
      () => undefined,
    );
    stage.mend();
    stage.note({ kind: 'fact', name: 'uploads that are left', wanted: 0, found: await left() });
  },
};
