import { readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { createAskBridge, passing, passUntilStored } from './ask-bridge.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const TEXT = 'what a turn has produced';

interface Listed {
  readonly downloadUrl: string;
}

/** Files that turns produce: kept, downloaded, removed. */
export const artifactsScenario: Scenario = {
  name: 'artifacts',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const agent = createScriptedProvider('one', async ({ workingDirectory, report }) => {
      const path = join(workingDirectory, 'report.txt');
      await writeFile(path, TEXT);
      const edit = {
        toolCallId: path,
        title: 'edit',
        status: 'completed',
        toolKind: 'edit',
        locations: [{ path }],
      } as const;
      report({ kind: 'tool_call', ...edit });
      return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
    });
    const { url, database, folder } = await startBridge(stage.scope, { providers: [agent], clock });
    const ask = createAskBridge(url, clock);
    const openTurns = () => database.query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    const rows = () => database.query.selectFrom('artifacts').select('id').execute();
    stage.watch(database);

    const told = await stage.step({
      name: 'a turn that produces a file',
      ask: () => ask('session.start', { sessionId: 's', taskPrompt: 'write' }),
      pause: () => passUntilStored(clock, async () => (await openTurns()).length === 0),
    });
    // One that could not be kept is left out of the answer.
    const listed = (told?.artifacts ?? []) as readonly Listed[];
    for (const { downloadUrl } of listed) {
      await stage.step({ name: 'a download', ask: () => download(`${url}${new URL(downloadUrl, url).pathname}`) });
    }
    const files = join(folder, 'artifacts');
    clock.stepWall(2 * DAY_MS);
    for (const name of await readdir(files)) await utimes(join(files, name), 0, 0);
    const left = async () => (await rows()).length + (await readdir(files)).length;
    await passUntil(clock, 11 * MINUTE_MS, 'the artifacts to be removed', async () => (await left()) === 0);
    stage.mend();
    stage.note({ kind: 'fact', name: 'artifacts that are left', wanted: 0, found: await left() });

    async function download(address: string): Promise<Asked<string>> {
      const response = await passing(clock, fetch(address));
      const text = await response.text();
      if (response.status === 200) return { told: text, code: '', problems: text === TEXT ? [] : [`it says ${text}`] };
      const { error } = JSON.parse(text);
      const code = String(error.data.code).toLowerCase();
      return { code, problems: response.status === 503 ? [] : [`${response.status} ${code} is not documented`] };
    }
  },
};
