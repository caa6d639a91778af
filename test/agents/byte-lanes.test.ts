import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { startAgent } from '../kit/bridge/agent-under-test.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { startWireTap, type TappedCall } from '../kit/wire-tap.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, realFolder, setUpAgent } from './real-agent.ts';

// Real agents, a tap in front of Trestle and a tap behind it: both must have seen the same bytes.

const UPSTREAM_KEY = 'sk-upstream-key-4711';
const TURN_LIMIT_MS = 120_000;
/** The key, the host, and what belongs to one connection or to one attempt of ours. */
const OF_THE_PROXY = ['host', 'x-api-key', 'authorization', 'connection', 'accept-encoding', 'idempotency-key'];

const scope = newestFirst({ after });
const model = await startObedientModel();
scope.after(() => model.stop());
/** What the model APIs get from us. */
const behind = await startWireTap(scope, model.url);
const program = await startTrestle();
/** What the agents send to us. */
const before = await startWireTap(scope, program.url);

async function startTrestle(): Promise<RunningProgram> {
  const config = join(await realFolder(scope, 'trestle-config-'), 'trestle.yaml');
  const api = { base_url: `${behind.url}/v1`, api_key: UPSTREAM_KEY };
  await writeFile(
    config,
    JSON.stringify({ completions: { apis: { anthropic: api, openai: { ...api, responses: true } } } }),
  );
  return startProgram(scope, { args: ['completions', '--config', config] });
}

const PATHS = ['/v1/messages?beta=true', '/v1/responses'];

for (const { id, protocol, model: asked, path } of [
  { id: 'claude', protocol: 'acp', model: 'claude-sonnet-4-6', path: '/v1/messages?beta=true' },
  { id: 'codex', protocol: 'codex', model: 'gpt-5.1-codex', path: '/v1/responses' },
] as const) {
  test(`${id}: a model API gets and answers byte for byte what the agent sends and gets`, {
    timeout: TURN_LIMIT_MS,
  }, async () => {
    const agent = await setUpAgent(scope, id, before.url);
    const folder = await realFolder(scope, 'work-');
    const running = startAgent(scope, agent, { protocol, folder });
    const choice = id === 'codex' ? { model: asked } : {};
    const first = running.run({ prompt: 'RUN echo made-by-agent >made.txt && echo it-is-made', folder, ...choice });
    const end = await first.end;
    assert.match(end.kind === 'completed' ? end.output : JSON.stringify(end), /it-is-made/);
    assert.equal(await readFile(join(folder, 'made.txt'), 'utf8'), 'made-by-agent\n');
    // With the answers of the first turn in its prompt, thinking included.
    const second = await running.run({ prompt: 'SAY alpha', folder, reference: first.reference(), ...choice }).end;
    assert.match(second.kind === 'completed' ? second.output : JSON.stringify(second), /^Here is alpha from/);

    // Claude Code asks for a title besides, and after a turn for what the person may say next, with all of its tools; it leaves that
    // call as soon as the person says something, which is here the second prompt.
    const ofAgent = (calls: readonly TappedCall[]) => calls.filter((call) => call.path === path);
    const open = () => ofAgent(before.calls).filter(({ isWhole, wasLeft }) => !isWhole && !wasLeft);
    await until('open calls to end', async () => open().length === 0).catch((error: Error) => {
      const which = open().map(({ status, answer, body }) => [status, String(answer), String(body).slice(0, 500)]);
      throw new Error(`${error.message}: ${JSON.stringify(which)}`);
    });
    const left = ofAgent(before.calls).filter(({ wasLeft }) => wasLeft);
    const sent = ofAgent(before.calls).filter(({ wasLeft }) => !wasLeft);
    assert.ok(sent.length >= 3 && sent.every(({ status }) => status === 200));
    assert.ok(sent.every(({ body }) => JSON.parse(body.toString('utf8')).model === asked));
    const isKept = ({ body }: TappedCall) => !left.some((one) => one.body.equals(body));
    compare(sent, ofAgent(behind.calls).filter(isKept));
    const strangers = before.calls.filter((call) => !PATHS.includes(call.path)).map((call) => call.path);
    assert.deepEqual(strangers, [], 'calls that no lane takes');
  });
}

/** Calls may overtake each other, so each is looked for by its body. */
function compare(sent: readonly TappedCall[], received: readonly TappedCall[]): void {
  assert.equal(received.length, sent.length);
  const left = [...received];
  for (const call of sent) {
    const index = left.findIndex(({ body }) => body.equals(call.body));
    assert.notEqual(index, -1, `no model API got this body: ${call.body.toString('utf8').slice(0, 300)}`);
    const [other] = left.splice(index, 1) as [TappedCall];
    assert.deepEqual([other.method, other.path, other.status], [call.method, call.path, call.status]);
    assert.deepEqual(headersOf(other), headersOf(call));
    assert.ok(other.headers.some(([, value]) => value.includes(UPSTREAM_KEY)));
    assert.ok(call.isWhole && other.isWhole);
    assert.equal(call.answer.toString('utf8'), other.answer.toString('utf8'));
  }
}

function headersOf({ headers }: TappedCall): readonly string[] {
  return headers
    .filter(([name]) => !OF_THE_PROXY.includes(name))
    .map(([name, value]) => `${name}: ${value}`)
    .sort();
}
