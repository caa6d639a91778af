import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { WebSocket } from 'ws';
import { call, openClient, type SessionSocket, stream } from '../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../kit/bridge/start-bridge.ts';
import { asMain, asNode, asReview, FORWARD_TOKEN } from '../kit/bridge/start-nodes.ts';
import { inTime } from '../kit/in-time.ts';
import fc from '../kit/properties.ts';
import { startScriptedGateway } from '../kit/scripted-gateway.ts';
import { createScriptedProvider, endless, type TurnScript } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

/**
 * What callers of a bridge share, one of them could use against the others: places, agents, the store, the connection to
 * the gateway, names. Here a hostile caller does its worst with every method of the table and on every transport, while
 * well-behaved ones have a session, a job, a stream, a file and a tool. They must not notice.
 */

const gateway = await startScriptedGateway(
  { after },
  {
    answer: async (method) =>
      method === 'tools.invoke' ? new Promise((done) => setTimeout(done, 50, { done: true })) : {},
  },
);

/** Does what the prompt says: the worst that an agent can do to its bridge. */
const obedient: TurnScript = async (turn) => {
  const { prompt, report, workingDirectory, count } = turn;
  if (prompt.startsWith('hang')) return endless(turn);
  if (prompt.startsWith('crash')) return { kind: 'failed', code: 'AGENT_EXITED', error: 'it crashed', output: '' };
  if (prompt.startsWith('throw')) throw new Error('a fault');
  if (prompt.startsWith('flood'))
    for (let index = 0; index < 300; index += 1) report({ kind: 'text', text: 'x'.repeat(999) });
  if (prompt.startsWith('file')) {
    const path = join(workingDirectory, 'file.txt');
    await writeFile(path, prompt);
    const rest = { toolCallId: 'w', title: 'write', toolKind: 'edit', locations: [{ path }] };
    report({ kind: 'tool_call', status: 'completed', ...rest });
  }
  for (const text of prompt.slice(0, 200).split(/(?<= )/)) {
    report({ kind: 'text', text });
    await new Promise(setImmediate);
  }
  return { kind: 'completed', output: `${count} ${prompt.slice(0, 200)}`, stopReason: 'end_turn' };
};

const LIMITS =
  '{ turns: 12, turns_per_principal: 5, turns_per_agent: 9, waiting_turns: 40, waiting_turns_per_principal: 10, calls_per_connection: 20, artifact_bytes: 4194304, artifact_bytes_per_owner: 1048576 }';
const { url, root, folder, bridge } = await startBridge(
  { after },
  {
    providers: [createScriptedProvider('shared', obedient)],
    settings: [
      `bridge: { auth_token: ${MAIN_TOKEN}, review_auth_token: ${REVIEW_TOKEN}, limits: ${LIMITS} }`,
      `gateway: { url: "${gateway.url}", token: gateway-token-1 }`,
      'jobs: { max_running: 3, max_waiting_per_owner: 20 }',
      `distributed: { local_node_id: b, task_forward_token: ${FORWARD_TOKEN} }`,
      '',
    ].join('\n'),
  },
);

const over = new AbortController();
after(() => over.abort());
const sockets: WebSocket[] = [];
after(() => {
  for (const socket of sockets) socket.terminate();
});

/** What the hostile caller tries for members of these names; all others are made by their schema. */
const TRIED: Readonly<Record<string, readonly unknown[]>> = {
  sessionId: ['good', 'good-job', 'h1', 'h2', 'h3', 'h4'],
  threadId: ['good', 'h'],
  taskPrompt: ['hang', 'crash', 'throw', 'flood', 'file of the hostile one', 'hello', 'x'.repeat(300_000)],
  jobId: ['JOB', 'job-0'],
  idempotencyKey: ['KEY', 'h'],
  workingDirectory: ['', '/', root, folder],
  providerId: ['shared', 'nobody', 'openclaw'],
  explicitProviderId: ['shared', 'nobody'],
  explicitExecutionTarget: ['', 'gateway'],
  preferredGatewayProviderId: ['openclaw'],
  orchestrationMode: ['sequence', 'parallel', 'race', 'conversation'],
  steps: [Array.from({ length: 12 }, () => ({ providerId: 'shared', prompt: 'hang' }))],
  method: ['chat.send', 'chat.abort', 'agent.wait', 'tools.invoke'],
  callbackUrl: ['', 'http://127.0.0.1:9/'],
  webhookUrl: ['', 'http://169.254.169.254/'],
  tool: ['message'],
};
const JUNK = [null, [], {}, -1, 2 ** 53, '\ud800', 'x'.repeat(100_000), [[[[[[]]]]]]];

interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

function anyValue(name: string, schema: Schema): fc.Arbitrary<unknown> {
  const tried = TRIED[name] ?? schema.enum;
  const fitting =
    tried !== undefined
      ? fc.constantFrom(...tried)
      : schema.properties !== undefined
        ? anyObject(schema)
        : schema.type === 'boolean'
          ? fc.boolean()
          : fc.constantFrom<unknown>('', 'text', 0, 1000, [], {});
  return fc.oneof({ weight: 9, arbitrary: fitting }, { weight: 1, arbitrary: fc.constantFrom(...JUNK) });
}

function anyObject({ properties = {}, required = [] }: Schema): fc.Arbitrary<Record<string, unknown>> {
  const members = Object.entries(properties).map(([name, schema]) => [name, anyValue(name, schema)]);
  return fc.record(Object.fromEntries(members), { requiredKeys: [...required] });
}

interface Attack {
  readonly method: string;
  readonly params: unknown;
  readonly via: 'request' | 'broken stream' | 'unread stream' | 'socket' | 'batch' | 'garbage' | 'follow' | 'file';
  readonly headers: Readonly<Record<string, string>>;
}

/** An attack with each method of the table, well-formed or not: a new method is attacked too. */
const anyAttack: fc.Arbitrary<Attack> = fc.oneof(
  ...bridge.methods.map(({ name, params }) =>
    fc.record<Attack>({
      method: fc.constant(name),
      params: anyObject(params as Schema),
      via: fc.constantFrom('request', 'broken stream', 'unread stream', 'socket', 'batch', 'garbage', 'follow', 'file'),
      headers: fc.constantFrom<Attack['headers']>({}, {}, { 'idempotency-key': 'KEY' }, { 'last-event-id': '1' }),
    }),
  ),
);

/** Attacks on what is shared: places, agents, jobs, the store, the gateway. They are always well-formed. */
const sharpAttack: fc.Arbitrary<Attack> = fc
  .tuple(fc.constantFrom('hang', 'crash', 'throw', 'flood', 'file of the hostile one'), fc.nat(40), fc.nat(5))
  .map(([taskPrompt, number, which]) => {
    const turn = { sessionId: `h${number}`, taskPrompt };
    const steps = Array.from({ length: 12 }, () => ({ providerId: 'shared' }));
    const team = { ...turn, multiAgent: true, routing: { orchestrationMode: 'parallel', steps } };
    const attacks: readonly (readonly [string, object, Attack['via']])[] = [
      ['session.start', turn, 'unread stream'],
      ['session.start', { ...turn, taskPrompt: 'hang' }, 'request'],
      ['session.start', team, 'broken stream'],
      ['session.message', turn, 'socket'],
      ['app.jobs.submit', { ...turn, sessionId: '', timeoutMs: 86_400_000 }, 'batch'],
      ['app.gateway.disconnect', {}, 'batch'],
    ];
    const [method, params, via] = attacks[which] ?? ['', {}, 'garbage'];
    return { method, params, via, headers: {} };
  });

/** What the hostile caller has found out about the others. */
interface Known {
  readonly key: string;
  jobId: string;
  link: string;
}

/** Sends an attack and does not wait for what comes of it. */
function attack({ method, params, via, headers }: Attack, known: Known): void {
  const message = { jsonrpc: '2.0', id: 1, method, params };
  const text = JSON.stringify(via === 'batch' ? Array.from({ length: 100 }, () => message) : message);
  const body =
    via === 'garbage'
      ? text.slice(0, -3)
      : text.replaceAll('"JOB"', JSON.stringify(known.jobId)).replaceAll('"KEY"', JSON.stringify(known.key));
  const ignore = () => undefined;
  if (via === 'socket' || via === 'follow') {
    const query = via === 'follow' ? '?sessionId=good&afterSeq=0' : '';
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp${query}`, { headers: asReview });
    sockets.push(socket);
    socket.on('error', ignore);
    socket.on('open', () => {
      for (let count = 0; count < 30; count += 1) socket.send(body, ignore);
      socket.pause();
    });
  } else if (via === 'file') {
    fetch(`${url}${known.link}x`, { headers: asReview, signal: over.signal })
      .then((it) => it.text(), ignore)
      .catch(ignore);
  } else {
    const accept = via.endsWith('stream') ? 'text/event-stream' : 'application/json';
    const key = headers['idempotency-key'] === undefined ? {} : { 'idempotency-key': known.key };
    const sent = { 'content-type': 'application/json', accept, ...asReview, ...headers, ...key };
    const answer = fetch(`${url}/acp/rpc`, { method: 'POST', headers: sent, body, signal: over.signal });
    answer
      .then(async (response) => {
        if (via === 'broken stream') await response.body?.cancel();
        else if (via !== 'unread stream') await response.text();
      })
      .catch(ignore);
  }
}

type Credential = Readonly<Record<string, string>>;
const asGoodNode = asNode({ 'x-app-forward-source': 'good' });

/** A caller that has nothing to do with the hostile one. Each of its steps gives what it would give alone. */
async function behaveWell(credential: Credential, known: Known, meanwhile: () => void): Promise<void> {
  const scope = { after: (end: () => void) => void ends.push(end) };
  const ends: (() => void)[] = [];
  const turnIds = new Set<unknown>();
  const start = { sessionId: 'good', taskPrompt: 'file of the good one' };
  const started = await inTime('a start', call(url, 'session.start', start, credential));
  assert.equal(started.result?.output, '0 file of the good one', JSON.stringify(started));
  const [file] = (started.result?.artifacts ?? []) as { downloadUrl: string }[];
  const link = file?.downloadUrl ?? '';
  known.link = link;
  const follower: SessionSocket = await openClient(scope, url, { headers: credential, query: 'sessionId=good' });
  for (let count = 1; count <= 3; count += 1) {
    meanwhile();
    const params = { sessionId: 'good', taskPrompt: `message number ${count}` };
    const key = { 'idempotency-key': known.key };
    const headers = count === 1 ? { ...credential, ...key } : credential;
    const { updates, final } = await inTime('a message', stream(url, { method: 'session.message', params }, headers));
    assert.equal(final.result?.output, `${count} message number ${count}`, JSON.stringify(final));
    turnIds.add(final.result?.turnId);
    const texts = updates.flatMap(({ type, text }) => (type === 'delta' ? [text] : []));
    assert.equal(texts.join(''), params.taskPrompt);
    assert.ok(
      updates.every(
        ({ turnId, seq }, index) => turnId === final.result?.turnId && seq === (updates[0]?.seq ?? 0) + index,
      ),
    );
    if (count > 1) continue;
    const again = await call(url, 'session.message', params, headers);
    assert.equal(again.result?.turnId, final.result?.turnId, 'the same key gives the same turn');
  }
  meanwhile();
  const task = { sessionId: 'good-job', newSession: true, taskPrompt: 'a job', callbackUrl: '' };
  const submitted = await inTime('a submit', call(url, 'app.jobs.submit', task, credential));
  const jobId = String(submitted.result?.jobId);
  known.jobId = jobId;
  const job = async () => (await call(url, 'app.jobs.get', { jobId }, credential)).result;
  await until('the job to end', async () => ['completed', 'failed'].includes(String((await job())?.status)));
  assert.equal(Object((await job())?.result).output, '0 a job', JSON.stringify(await job()));
  meanwhile();
  const tool = { tool: 'message', action: 'send', args: {} };
  const invoked = await inTime('a tool', call(url, 'app.tools.invoke', tool, credential));
  assert.deepEqual(invoked.result, { done: true }, JSON.stringify(invoked));
  const download = await inTime('a download', fetch(`${url}${link}`));
  assert.equal(await download.text(), 'file of the good one');
  await follower.seen(({ event, turnId }) => event === 'completed' && turnId === [...turnIds].at(-1));
  assert.deepEqual(new Set(follower.updates.map(({ turnId }) => turnId)), turnIds, 'it follows its own session');
  for (const end of ends) end();
}

const anyAttacks = fc.array(fc.oneof(anyAttack, sharpAttack), { minLength: 80, maxLength: 80 });
let runs = 0;

test('whatever a hostile caller does with every method, the others do not notice', async () => {
  await fc.assert(
    fc.asyncProperty(anyAttacks, async (attacks) => {
      runs += 1;
      const known: Known = { key: `key-${runs}`, jobId: 'job-none', link: '/artifacts/none' };
      const left = [...attacks];
      const meanwhile = () => {
        for (const one of left.splice(0, 8)) attack(one, known);
      };
      await Promise.all([behaveWell(asMain, known, meanwhile), behaveWell(asGoodNode, known, meanwhile)]);
    }),
    { numRuns: 3, endOnFailure: true },
  );
});
