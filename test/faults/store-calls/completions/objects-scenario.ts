import { startCompletions } from '../../../kit/completions/start-completions.ts';
import { MASTER_KEY } from '../../../kit/completions/start-keys.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { startScriptedUpstream } from '../../../kit/scripted-upstream.ts';
import { until } from '../../../kit/until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskCompletions } from './ask-completions.ts';

const FILE = 'file-1';
const BATCH = 'batch_1';
const OUTPUT = 'file-out';
const RESPONSE = 'resp_1';
const CHAT = '/v1/chat/completions';
const LINE = JSON.stringify({
  custom_id: 'a',
  method: 'POST',
  url: CHAT,
  body: { model: 'lab/small', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
});
const ENDED = {
  status: 'completed',
  output_file_id: OUTPUT,
  usage: { input_tokens: 10, output_tokens: 20, total_tokens: 30 },
};
const USAGE = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };

/** What model APIs keep for callers: files, batches, responses. This service remembers whose they are. */
export const objectsScenario: Scenario = {
  name: 'files, batches and kept responses',
  service: 'completions',
  async play(stage) {
    let hasBatchEnded = false;
    const upstream = await startScriptedUpstream(stage.scope, (response, { method, path }) => {
      const told: Readonly<Record<string, object>> = {
        '/v1/files': { id: FILE, object: 'file', filename: 'input.jsonl', purpose: 'batch' },
        '/v1/batches': { id: BATCH, object: 'batch', status: 'validating' },
        [`/v1/batches/${BATCH}`]: { id: BATCH, object: 'batch', status: 'validating', ...(hasBatchEnded && ENDED) },
        '/v1/responses': {
          ...{ id: RESPONSE, object: 'response', created_at: 1, model: 'small', status: 'completed', usage: USAGE },
          output: [],
        },
      };
      const isDeleted = method === 'DELETE' && { id: FILE, object: 'file', deleted: true };
      const text = JSON.stringify(isDeleted || (told[path] ?? { id: path.split('/').at(-1), object: 'file' }));
      response.setHeader('content-type', 'application/json').end(text);
    });
    const clock = stage.passing(createFakeClock());
    const settings = {
      ...{ master_key: MASTER_KEY, files_api: 'lab' },
      apis: { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'key-of-the-lab-77', responses: true } },
      prices: { 'lab/small': { input: 0.001, output: 0.01, batch_input: 0.0005, batch_output: 0.005 } },
    };
    const running = await startCompletions(stage.scope, { settings, clock });
    const { query } = running.database;
    const ask = createAskCompletions(running.url, ['key-of-the-lab-77']);
    stage.watch(running.database);

    const key = MASTER_KEY;
    const objects = () => query.selectFrom('upstream_objects').selectAll().execute();
    const isKept = async (id: string) => (await objects()).some((object) => object.id === id);
    const look = (path: string) => stage.step({ name: `GET ${path}`, ask: () => ask({ path, key }) });

    await stage.step({
      name: 'a file',
      ask() {
        const body = new FormData();
        body.append('purpose', 'batch');
        body.append('file', new Blob([`${LINE}\n`]), 'input.jsonl');
        return ask({ method: 'POST', path: '/v1/files', key, body });
      },
      stored: async () => storedOf(await isKept(FILE)),
    });
    await look('/v1/files');
    await look(`/v1/files/${FILE}`);
    await stage.step({
      name: 'a batch',
      ask: () =>
        ask({
          ...{ method: 'POST', path: '/v1/batches', key },
          body: { input_file_id: FILE, endpoint: CHAT, completion_window: '24h' },
        }),
      stored: async () => storedOf(await isKept(BATCH)),
    });
    hasBatchEnded = true;
    await stage.step({
      name: 'the batch at its end',
      ask: () => ask({ path: `/v1/batches/${BATCH}`, key }),
      async stored() {
        const isCorrected = (await objects()).some(({ id, detail }) => id === BATCH && detail === '');
        return storedOf(isCorrected && (await isKept(OUTPUT)));
      },
    });
    await look(`/v1/files/${OUTPUT}`);
    await stage.step({
      name: 'the end of a file',
      ask: () => ask({ method: 'DELETE', path: `/v1/files/${FILE}`, key }),
      stored: async () => storedOf(!(await isKept(FILE))),
      whenDone: ['nothing_stored'],
    });

    const respond = (name: string, more: object, refusal?: string) =>
      stage.step({
        name,
        ask: () =>
          ask({ method: 'POST', path: '/v1/responses', key, body: { model: 'lab/small', input: 'Hi', ...more } }),
        ...(refusal !== undefined && { refusal }),
      });
    await respond('a response that its API keeps', {});
    // Noted after the answer. What could not be noted is refused later: nobody knows whose it is.
    const failed = 'whose stored responses these are was not noted';
    await until('the note', async () => (await isKept(RESPONSE)) || running.log().includes(failed));
    const isNoted = await isKept(RESPONSE);
    await respond(
      'a response after it',
      { previous_response_id: RESPONSE },
      ...(isNoted ? [] : (['nothing_stored'] as const)),
    );

    await running.completions.stop();
    stage.mend();
    const rows = await query.selectFrom('usage_records').select(['operation', 'cost_nano_usd']).execute();
    const cost = rows
      .filter(({ operation }) => operation === 'batch')
      .reduce((sum, row) => sum + Number(row.cost_nano_usd), 0);
    // 10 tokens at 0.0005 USD and 20 at 0.005: the estimate is gone.
    const begun = upstream.requests.filter(({ path, method }) => path === '/v1/batches' && method === 'POST').length;
    if (begun === 1) stage.note({ kind: 'fact', name: 'nano USD of the batch', wanted: 105_000_000, found: cost });
  },
};
