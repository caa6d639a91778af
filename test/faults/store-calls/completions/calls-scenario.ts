import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { completionsErrors } from '../../../../src/completions/errors.ts';
import { createDispatch } from '../../../../src/platform/json-rpc/method-table.ts';
import { startCompletions } from '../../../kit/completions/start-completions.ts';
import { MASTER_KEY } from '../../../kit/completions/start-keys.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { askInside } from '../ask-inside.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskCompletions } from './ask-completions.ts';

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const OWNER = 'user:usr_ann';
const WORDS = 'one two three';
const CATALOGUE = JSON.stringify({
  openai: { id: 'openai', name: 'x', models: { new: { name: 'New', cost: { input: 1, output: 2 } } } },
});

/** Single calls: their log, what was said in them, their export; keys that are changed; the catalogue of models. */
export const callsScenario: Scenario = {
  name: 'calls, exports and the catalogue',
  service: 'completions',
  async play(stage) {
    // Ids of records have the time of this machine, and an export begins with the calls after its start.
    const clock = stage.passing(createFakeClock(Date.now() - HOUR_MS));
    const folder = await temporaryFolder(stage.scope);
    const file = join(folder, 'calls.jsonl');
    const catalogue = join(folder, 'models.json');
    await writeFile(catalogue, CATALOGUE);
    const exports = [{ name: 'disk', kind: 'file', path: file, interval: '1s', content: true }];
    const settings = { master_key: MASTER_KEY, store_content: true, exports };
    const running = await startCompletions(stage.scope, { settings, clock, contentRetentionMs: DAY_MS });
    const { database, completions } = running;
    const { query } = database;
    const secrets = [MASTER_KEY];
    const ask = createAskCompletions(running.url, secrets);
    const dispatch = createDispatch({ rows: completions.controls });
    const command = (method: string, params: Readonly<Record<string, unknown>>) => {
      const signal = new AbortController().signal;
      const nobodyListens = () => undefined;
      const call = { method, params, id: '1', caller: undefined, signal, requestId: 'test' };
      return askInside(completionsErrors, async () =>
        dispatch({ ...call, notify: nobodyListens, accept: nobodyListens }),
      );
    };
    stage.watch(database);

    const operate = (name: string, method: string, path: string, body?: object) => ({
      name,
      ask: () => ask({ method, path, key: MASTER_KEY, ...(body !== undefined && { body }) }),
    });
    const keys = () => query.selectFrom('keys').selectAll().execute();
    const given = { name: 'of Ann', owner: OWNER, budget: { usd: 5, period: 'day' } };
    const issued = await stage.step({
      ...operate('a key', 'POST', '/keys', given),
      stored: async () => storedOf((await keys()).length === 1),
    });
    const { id } = issued;
    secrets.push(issued.key);
    await stage.step({
      ...operate('another name', 'PATCH', `/keys/${id}`, { name: 'of Anna' }),
      stored: async () => storedOf((await keys()).some(({ name }) => name === 'of Anna')),
    });
    const digest = (await keys())[0]?.digest;
    const rotated = await stage.step({
      ...operate('another secret', 'POST', `/keys/${id}/rotate`, {}),
      stored: async () => storedOf((await keys()).every((key) => key.digest !== digest)),
    });
    const { key } = rotated;
    secrets.push(key);

    const chat = { model: 'demo/echo', messages: [{ role: 'user', content: WORDS }] };
    await stage.step({
      name: 'a call',
      ask: () => ask({ method: 'POST', path: '/v1/chat/completions', key, body: chat }),
    });
    const listed = await stage.step({
      name: 'the calls of a key',
      ask: () => ask({ path: '/v1/usage/calls', key }),
    });
    const [call] = listed.data;
    const shown = await stage.step({
      name: 'one of them',
      ask: () => ask({ path: `/v1/usage/calls/${call?.id}`, key }),
    });
    const request = JSON.stringify(shown?.content?.request ?? '');
    stage.note({ kind: 'fact', name: 'what was asked is kept', wanted: true, found: request.includes(WORDS) });
    const exported = async () => (await readFile(file, 'utf8').catch(() => '')).split('\n').slice(0, -1);
    await passUntil(clock, 90 * SECOND_MS, 'the export', async () => (await exported()).length > 0);
    const own = await stage.step({
      name: 'what the owner has used',
      ask: () => askInside(completionsErrors, () => completions.ownKeys.usage(OWNER)),
    });
    stage.note({ kind: 'fact', name: 'keys of the owner', wanted: 1, found: own?.keys.length });

    const contents = async () => (await query.selectFrom('usage_contents').select('record_id').execute()).length;
    await stage.step({
      name: 'the end of what an owner has asked',
      ask: () => askInside(completionsErrors, () => completions.ownKeys.eraseContents(OWNER)),
      stored: async () => storedOf((await contents()) === 0),
    });
    await stage.step({
      name: 'a call before its content is too old',
      ask: () => ask({ method: 'POST', path: '/v1/chat/completions', key, body: chat }),
    });
    await stage.step(operate('all calls', 'GET', '/usage/calls'));
    clock.stepWall(2 * DAY_MS);
    await passUntil(clock, HOUR_MS, 'old contents to be removed', async () => (await contents()) === 0);

    const versions = async () => (await query.selectFrom('catalogues').select('id').execute()).length;
    await stage.step({
      name: 'another catalogue',
      ask: () => command('models.update', { source: catalogue }),
      stored: async () => storedOf((await versions()) === 1),
    });
    await stage.step({
      name: 'the catalogue of before',
      ask: () => askInside(completionsErrors, () => completions.loadCatalogue()),
    });
    const last = (await query.selectFrom('usage_records').select('id').orderBy('id', 'desc').execute())[0]?.id ?? '';
    await passUntil(clock, 90 * SECOND_MS, 'the rest of the export', async () =>
      (await exported()).some((line) => line.includes(last)),
    );
    await completions.stop();
    stage.mend();
    const ids = new Set((await exported()).map((line) => (JSON.parse(line) as { readonly id: string }).id));
    const records = await query.selectFrom('usage_records').select('id').execute();
    const missing = records.filter((record) => !ids.has(record.id)).map((record) => record.id);
    stage.note({ kind: 'fact', name: 'calls that were not exported', wanted: [], found: missing });
  },
};
