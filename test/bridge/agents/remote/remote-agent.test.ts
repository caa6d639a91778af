import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { createRemoteAgent } from '../../../../src/bridge/agents/remote/create-remote-agent.ts';
import { type Clock, systemClock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../../src/platform/ids/sortable-id.ts';
import { supervised } from '../../../kit/bridge/supervised.ts';
import { createFakeRandomness } from '../../../kit/fake-randomness.ts';
import { freePort } from '../../../kit/free-port.ts';
import { type SeenRequest, sendEvents, startScriptedHttp } from '../../../kit/scripted-http.ts';
import { recordTurn } from '../recorded-turn.ts';

type Json = Record<string, unknown>;
interface Call {
  readonly id: string;
  readonly method: string;
  readonly params: Json & { readonly sessionId: string };
}

const folder = '/work/project';
const callOf = ({ body }: SeenRequest): Call => JSON.parse(body) as Call;
const update = ({ params }: Call, seq: number, fields: Json) => ({
  jsonrpc: '2.0',
  method: 'session.update',
  params: { sessionId: params.sessionId, threadId: params.sessionId, turnId: 'turn-there', seq, ...fields },
});
const delta = (call: Call, seq: number, text: string) =>
  update(call, seq, {
    type: 'delta',
    event: 'delta',
    delta: text,
    structuredEvent: { kind: 'text', type: 'text', text },
  });
const final = ({ id }: Call, result: Json) => ({
  jsonrpc: '2.0',
  id,
  result,
  ok: true,
  type: 'res',
  payload: result,
  seq: 9,
});
const failure = ({ id }: Call, code: number, word: string) => ({
  jsonrpc: '2.0',
  id,
  error: { code, message: `${word}: gone`, data: { code: word } },
  ok: false,
});
const completed = { success: true, status: 'completed', output: 'Done.', stopReason: 'end_turn' };
const seqOf = (event: unknown) => ((event as { params?: Json }).params?.seq ?? undefined) as number | undefined;

function answer(request: SeenRequest, events: readonly unknown[]): void {
  sendEvents(request.response, [...events, '[DONE]'], seqOf);
  request.response.end();
}

/** `hurry`: how much faster time goes for our own timers. */
function agentAt(url: string, limits: object = {}, hurry = 1) {
  const warnings: unknown[] = [];
  const clock: Clock = { ...systemClock, after: (ms, action) => systemClock.after(ms / hurry, action) };
  const agent = createRemoteAgent({
    id: 'far',
    url,
    token: 'the-token',
    clock,
    randomness: createFakeRandomness(),
    makeId: createSortableIds(systemClock, systemRandomness),
    logger: { warn: (fields) => warnings.push(fields) },
    isScratchFolder: (path) => path.startsWith('/scratch/'),
    hopLimit: 3,
    limits: { pauseMs: 1, longestPauseMs: 5, ...limits },
  });
  return { agent: supervised(agent, clock), warnings };
}

async function remote(
  context: TestContext,
  serve: (request: SeenRequest, call: Call, index: number) => void,
  limits: object = {},
) {
  const server = await startScriptedHttp(context, (request, index) => {
    // As an older bridge answers when it is asked what its agents can do.
    if (request.body === '') request.response.writeHead(404).end();
    else serve(request, callOf(request), index);
  });
  return { server, ...agentAt(server.url, limits) };
}

test('a turn is a session.start over there, and its updates are our events', async (context) => {
  const tool = {
    toolCallId: 't',
    title: 'Read',
    toolKind: 'read',
    input: { path: 'a' },
    locations: [{ path: '/a', line: 2 }, 7],
  };
  const denial = { kind: 'status', status: 'permission_denied', text: 'Denied: Run it', toolCallId: 't' };
  const { agent, server } = await remote(context, (request, call) =>
    answer(request, [
      update(call, 1, { type: 'status', event: 'started', message: 'started' }),
      update(call, 2, { type: 'status', event: 'thinking', structuredEvent: { kind: 'thinking', text: 'hm' } }),
      update(call, 3, {
        type: 'status',
        event: 'tool_call',
        structuredEvent: { kind: 'tool_call', ...tool, status: 'completed', output: 'x' },
      }),
      update(call, 4, { type: 'status', event: 'status', structuredEvent: { kind: 'status', text: 'Reading' } }),
      update(call, 5, { type: 'status', event: 'new', structuredEvent: { kind: 'something-new', text: 'x' } }),
      { ...delta(call, 6, 'stolen'), params: { ...delta(call, 6, 'stolen').params, sessionId: 'another' } },
      update(call, 7, { type: 'status', event: 'status', structuredEvent: denial }),
      delta(call, 8, 'Done.'),
      final(call, { ...completed, usage: { inputTokens: 3, outputTokens: 'x' } }),
    ]),
  );
  const turn = recordTurn(folder, 'work', { model: 'm', skills: ['s'] });
  const end = await agent.startTurn(turn);
  assert.deepEqual(end, { kind: 'completed', output: 'Done.', stopReason: 'end_turn', usage: { inputTokens: 3 } });
  assert.deepEqual(turn.events, [
    { kind: 'thinking', text: 'hm' },
    { kind: 'tool_call', ...tool, locations: [{ path: '/a', line: 2 }], status: 'completed', output: 'x' },
    { kind: 'status', text: 'Reading' },
    { kind: 'permission', title: 'Run it', decision: 'denied', toolCallId: 't' },
    { kind: 'text', text: 'Done.' },
  ]);
  const [seen] = server.requests;
  assert.ok(seen);
  assert.equal(seen.path, '/acp/rpc');
  assert.equal(seen.headers.authorization, 'Bearer the-token');
  assert.equal(seen.headers.accept, 'text/event-stream');
  const [reference = ''] = turn.references;
  assert.deepEqual(callOf(seen), {
    jsonrpc: '2.0',
    id: turn.turnId,
    method: 'session.start',
    params: {
      sessionId: reference,
      threadId: reference,
      taskPrompt: 'work',
      workingDirectory: folder,
      routing: { explicitModel: 'm', explicitSkills: ['s'], availableSkills: ['s'] },
    },
  });
});

test('a folder that our bridge made for itself is not handed on', async (context) => {
  const { agent, server } = await remote(context, (request, call) => answer(request, [final(call, completed)]));
  await agent.startTurn(recordTurn('/scratch/x', 'work'));
  assert.equal(server.requests[0]?.body.includes('workingDirectory'), false);
});

test('B-49: a lost conversation is lost, and nothing is started instead', async (context) => {
  const { agent, server } = await remote(context, (request, call) =>
    answer(request, [failure(call, -32002, 'SESSION_CONTINUATION_UNAVAILABLE')]),
  );
  const end = await agent.continueTurn('remote-1', recordTurn(folder, 'more'));
  assert.equal(end.kind, 'lost');
  assert.deepEqual(
    server.requests.map((request) => callOf(request).method),
    ['session.message'],
  );
  const start = await agent.startTurn(recordTurn(folder, 'x'));
  assert.equal(start.kind === 'failed' && start.code, 'AGENT_FAILED');
});

test('a connection that breaks is made again, from where it broke, and each update counts once', async (context) => {
  const { agent, server } = await remote(context, (request, call, index) => {
    const all = [1, 2, 3, 4].map((seq) => delta(call, seq, `${seq}`));
    if (index === 0) {
      sendEvents(request.response, all.slice(0, 2), seqOf);
      setTimeout(() => request.response.destroy(), 10);
    } else if (index === 1) {
      // Ends in good order, but without the answer, and repeats what was seen.
      sendEvents(request.response, all.slice(0, 3), seqOf);
      request.response.end();
    } else answer(request, [...all.slice(3), final(call, completed)]);
  });
  const turn = recordTurn(folder, 'count');
  assert.equal((await agent.startTurn(turn)).kind, 'completed');
  assert.equal(turn.text(), '1234');
  assert.equal(turn.references.length, 1);
  assert.deepEqual(
    server.requests.map(({ headers }) => headers['last-event-id']),
    [undefined, '2', '3'],
  );
  assert.deepEqual(new Set(server.requests.map(({ headers }) => headers['idempotency-key'])), new Set([turn.turnId]));
  assert.equal(new Set(server.requests.map(({ body }) => body)).size, 1, 'the very same call each time');
});

test('B-90: an agent that stays unreachable is given up, and the error says whether it may have worked', async (context) => {
  const nowhere = agentAt(`http://127.0.0.1:${await freePort()}`).agent;
  const first = await nowhere.startTurn(recordTurn(folder, 'x'));
  assert.equal(first.kind === 'failed' && first.error, 'The agent cannot be reached: nothing listens at its address.');
  const { agent, server } = await remote(context, ({ response }) => void response.destroy());
  const second = await agent.startTurn(recordTurn(folder, 'x'));
  assert.match(second.kind === 'failed' ? second.error : '', /whether it has done its work is not known\.$/);
  assert.equal(server.requests.length, 6);
});

test('a turn that is not known any more after a break fails, and is not run again', async (context) => {
  const { agent, server } = await remote(context, (request, call, index) => {
    if (index > 0) return answer(request, [failure(call, -32602, 'RESUME_NOT_FOUND')]);
    sendEvents(request.response, [delta(call, 1, 'begun')], seqOf);
    setTimeout(() => request.response.destroy(), 10);
  });
  const end = await agent.startTurn(recordTurn(folder, 'x'));
  assert.deepEqual(end, { kind: 'failed', code: 'AGENT_FAILED', error: 'RESUME_NOT_FOUND: gone', output: 'begun' });
  assert.equal(server.requests.length, 2);
});

test('a bridge that restarts is waited for; one that refuses is not', async (context) => {
  const restarting = await remote(context, (request, call, index) => {
    if (index < 2) request.response.writeHead(503, { 'retry-after': '1' }).end();
    else answer(request, [final(call, completed)]);
  });
  assert.equal((await restarting.agent.startTurn(recordTurn(folder, 'x'))).kind, 'completed');
  const refusing = await remote(context, ({ response }) => {
    response.writeHead(401, { 'content-type': 'application/json' });
    response.end(
      JSON.stringify({ error: { code: -32001, message: 'A valid token is needed.', data: { code: 'UNAUTHORIZED' } } }),
    );
  });
  const end = await refusing.agent.startTurn(recordTurn(folder, 'x'));
  assert.equal(end.kind === 'failed' && end.error, 'A valid token is needed.');
  assert.equal(refusing.server.requests.length, 1);
  const redirecting = await remote(
    context,
    ({ response }) => void response.writeHead(307, { location: refusing.server.url }).end(),
  );
  assert.equal((await redirecting.agent.startTurn(recordTurn(folder, 'x'))).kind, 'failed');
  assert.equal(refusing.server.requests.length, 1, 'the token did not go there');
});

test('a stream that falls silent counts as broken', async (context) => {
  const { agent, server } = await remote(
    context,
    (request, call, index) => {
      if (index === 0) sendEvents(request.response, [delta(call, 1, 'a')], seqOf);
      else answer(request, [final(call, completed)]);
    },
    { idleMs: 150 },
  );
  assert.equal((await agent.startTurn(recordTurn(folder, 'x'))).kind, 'completed');
  assert.equal(server.requests[1]?.headers['last-event-id'], '1');
});

test('every way in which a turn ends over there is one of ours', async (context) => {
  let result: Json = {};
  const { agent } = await remote(context, (request, call) => answer(request, [final(call, result)]));
  const endOf = async (given: Json) => {
    result = given;
    return agent.startTurn(recordTurn(folder, 'x'));
  };
  const failed = (code: string) => ({ status: 'failed', success: false, code, error: 'why', output: 'half' });
  assert.deepEqual(await endOf(failed('AGENT_TIMEOUT')), {
    kind: 'failed',
    code: 'AGENT_TIMEOUT',
    error: 'why',
    output: 'half',
  });
  assert.deepEqual(await endOf(failed('TURN_INTERRUPTED')), {
    kind: 'failed',
    code: 'AGENT_EXITED',
    error: 'why',
    output: 'half',
  });
  assert.deepEqual(await endOf(failed('SOMETHING_NEW')), {
    kind: 'failed',
    code: 'AGENT_FAILED',
    error: 'why',
    output: 'half',
  });
  assert.deepEqual(await endOf(failed('EMPTY_OUTPUT')), { kind: 'completed', output: '', stopReason: 'end_turn' });
  assert.deepEqual(await endOf({ status: 'cancelled', output: 'half' }), { kind: 'cancelled', output: 'half' });
  const unavailable = { status: 'unavailable', unavailable: true, unavailableMessage: 'It is down.' };
  assert.deepEqual(await endOf(unavailable), {
    kind: 'failed',
    code: 'AGENT_FAILED',
    error: 'It is down.',
    output: '',
  });
  assert.equal((await endOf({})).kind, 'failed');
});

test('cancel is asked for over there, and the turn ends as that side says', async (context) => {
  let running: SeenRequest | undefined;
  const { agent, server } = await remote(context, (request, call) => {
    if (call.method === 'session.start') {
      running = request;
      sendEvents(request.response, [delta(call, 1, 'half')], seqOf);
      return;
    }
    answer(request, [final(call, { accepted: true })]);
    if (running !== undefined) answer(running, [final(callOf(running), { status: 'cancelled', output: 'half' })]);
  });
  const turn = recordTurn(folder, 'x');
  const ending = agent.startTurn(turn);
  await turn.when(({ kind }) => kind === 'text');
  await agent.cancel(turn.turnId);
  assert.deepEqual(await ending, { kind: 'cancelled', output: 'half' });
  const [, cancelling] = server.requests;
  assert.ok(cancelling);
  assert.deepEqual(callOf(cancelling).params, { sessionId: turn.references[0] });
  assert.equal(cancelling.headers['idempotency-key'], undefined);
});

test('a side that does not react to cancel is left, within five seconds', async (context) => {
  const server = await startScriptedHttp(context, (request) => {
    const call = callOf(request);
    if (call.method === 'session.start') sendEvents(request.response, [delta(call, 1, 'half')], seqOf);
  });
  const { agent } = agentAt(server.url, {}, 20);
  const turn = recordTurn(folder, 'x');
  const ending = agent.startTurn(turn);
  await turn.when(({ kind }) => kind === 'text');
  await agent.cancel(turn.turnId);
  assert.deepEqual(await ending, { kind: 'cancelled', output: 'half' });
});

test('close is handed on; where that fails it is noted, not thrown', async (context) => {
  const { agent, server, warnings } = await remote(context, (request, call) =>
    answer(request, [final(call, { accepted: true })]),
  );
  await agent.close('remote-1');
  assert.equal(callOf(server.requests[0] as SeenRequest).method, 'session.close');
  assert.deepEqual(warnings, []);
  const gone = agentAt(`http://127.0.0.1:${await freePort()}`);
  await gone.agent.close('remote-1');
  assert.equal(gone.warnings.length, 1);
});

test('a probe tells whether an agent over there can be used', async (context) => {
  let result: Json = {};
  const { agent } = await remote(context, (request, call) => answer(request, [final(call, result)]));
  const probe = () => agent.probe(new AbortController().signal);
  result = {
    providerCatalog: [{ providerId: 'gemini', version: '0.61.0' }],
    providerProbeSummary: [{ providerId: 'gemini', available: true, status: 'ok' }],
  };
  assert.deepEqual(await probe(), { status: 'ok', version: '0.61.0' });
  result = { providerProbeSummary: [{ providerId: 'gemini', available: false, status: 'not_installed' }] };
  assert.deepEqual(await probe(), { status: 'failed: not_installed', version: '' });
  result = { providerProbeSummary: 'odd' };
  assert.deepEqual(await probe(), { status: 'failed: no agent there', version: '' });
  const gone = agentAt(`http://127.0.0.1:${await freePort()}`).agent;
  assert.deepEqual(await gone.probe(new AbortController().signal), {
    status: 'failed: nothing listens at its address',
    version: '',
  });
});

test('B-60: garbage in the stream ends the turn with a reason and never a throw', async (context) => {
  const bodies = ['data: {"id":\n\n', 'data: 7\n\n', 'nonsense\n\n', 'data: [DONE]\n\n', ''];
  for (const body of bodies) {
    const { agent } = await remote(context, ({ response }) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(body);
    });
    assert.equal((await agent.startTurn(recordTurn(folder, 'x'))).kind, 'failed');
  }
  const { agent } = await remote(
    context,
    ({ response }) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
  );
  const end = await agent.startTurn(recordTurn(folder, 'x'));
  assert.equal(end.kind === 'failed' && end.error, 'it did not answer with events');
});
