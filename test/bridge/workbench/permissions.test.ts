import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import type { AskPermission, PermissionQuestion } from '../../../src/bridge/agents/agent-provider.ts';
import type { BridgeEvent } from '../../../src/bridge/contract/surface.ts';
import type { Permission, SessionPage, SessionView, StoredRule } from '../../../src/bridge/contract/workbench.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createPermissions } from '../../../src/bridge/workbench/permissions.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);
const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];

/** Asks for permission to run its prompt as a command, and says which option was chosen. */
const asker = createScriptedProvider('asker', async ({ prompt, ask, signal }) => {
  const input = { command: prompt };
  const question = { toolCallId: 't', title: `run ${prompt}`, toolKind: 'execute', input, options: OPTIONS };
  const { optionId, reason } = (await ask?.(question, signal)) ?? {};
  if (signal.aborted) return { kind: 'cancelled', output: '' };
  const why = reason === undefined ? '' : ` because ${reason}`;
  return { kind: 'completed', output: `chosen: ${optionId}${why}`, stopReason: 'end_turn' };
});
const settings = `bridge:
  auth_token: ${MAIN_TOKEN}
  review_auth_token: ${REVIEW_TOKEN}
  permission_rules:
    - { when: { kind: execute, command: [git, status] }, then: allow }
    - { when: { command: [rm] }, then: deny }
`;
const bridge = await startBridge({ after }, { providers: [asker], settings });
const { url, root } = bridge;

let count = 0;
async function ask(taskPrompt: string, permissions?: string, headers = main, more = {}) {
  count += 1;
  const sessionId = `s${count}`;
  const params = { sessionId, taskPrompt, workingDirectory: root, ...more };
  const routing = permissions === undefined ? {} : { routing: { permissions } };
  const answer = call(url, 'session.start', { ...params, ...routing }, headers);
  return { sessionId, output: answer.then(({ result }) => result?.output) };
}

async function request<Shape>(method: string, path: string, body?: unknown, headers = main) {
  const response = await fetch(`${url}/api/bridge/${path}`, {
    method,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return {
    status: response.status,
    body: (await response.json()) as Shape & { error: string; details: Record<string, unknown> },
  };
}

const openOf = (sessionId: string, headers = main) =>
  until(`a question of ${sessionId}`, async () => {
    const { body } = await request<{ permissions: Permission[] }>('GET', 'permissions', undefined, headers);
    return body.permissions.find((one) => one.sessionId === sessionId);
  });
const answer = (id: string, body: unknown, headers = main) =>
  request<{ permission: Permission }>('POST', `permissions/${id}/answer`, body, headers);

test('without asking, rules and the call decide, and the default is to allow', async () => {
  for (const [prompt, permissions, expected] of [
    ['make', undefined, 'yes'],
    ['make', 'allow', 'yes'],
    ['make', 'deny', 'no'],
    ['git status', 'ask', 'yes'],
    ['sudo rm x', 'allow', 'no'],
    ['git status; rm x', undefined, 'no'],
  ] as const) {
    assert.equal(await (await ask(prompt, permissions)).output, `chosen: ${expected}`, prompt);
  }
  const wrong = await call(
    url,
    'session.start',
    { sessionId: 'w', taskPrompt: 'x', routing: { permissions: 'maybe' } },
    main,
  );
  assert.equal(wrong.error?.data.code, 'INVALID_PARAMS');
});

test('a question waits for a person, and the session needs them', async () => {
  const { sessionId, output } = await ask('npm test', 'ask');
  const { permissionId, ...open } = await openOf(sessionId);
  assert.deepEqual([open.title, open.toolKind, open.state, open.folder], ['run npm test', 'execute', 'open', root]);
  assert.deepEqual(open.options, OPTIONS);
  const listed = (await request<SessionPage>('GET', 'sessions?state=needs_you')).body;
  assert.deepEqual([listed.sessions[0]?.sessionId, listed.sessions[0]?.openPermissions], [sessionId, 1]);
  assert.equal(listed.counts.needsYou, 1);
  const shown = (await request<SessionView>('GET', `sessions/${sessionId}`)).body;
  assert.equal(shown.permissions[0]?.permissionId, permissionId);
  const { status, body } = await answer(permissionId, { decision: 'allow', reason: 'fine' });
  assert.equal(status, 200);
  assert.deepEqual(
    [body.permission.state, body.permission.optionId, body.permission.answeredBy, body.permission.reason],
    ['allowed', 'yes', 'main', 'fine'],
  );
  assert.equal(await output, 'chosen: yes because fine');
  const again = await answer(permissionId, { decision: 'deny' });
  assert.deepEqual([again.status, again.body.error], [409, 'permission_answered']);
  assert.equal((again.body.details.permission as Permission).state, 'allowed');
  assert.equal((await request<SessionPage>('GET', 'sessions?state=needs_you')).body.counts.needsYou, 0);
});

test('a person denies with a reason: the agent gets it, and the request keeps it', async () => {
  const { sessionId, output } = await ask('npm publish', 'ask');
  const { permissionId } = await openOf(sessionId);
  const { body } = await answer(permissionId, { decision: 'deny', reason: 'not on a Friday' });
  assert.deepEqual([body.permission.state, body.permission.reason], ['denied', 'not on a Friday']);
  assert.equal(await output, 'chosen: no because not on a Friday');
});

test('of two answers at the same time one counts', async () => {
  const { sessionId, output } = await ask('npm run build', 'ask');
  const { permissionId } = await openOf(sessionId);
  const both = await Promise.all([answer(permissionId, { optionId: 'yes' }), answer(permissionId, { optionId: 'no' })]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), [200, 409]);
  const first = both.find(({ status }) => status === 200);
  assert.equal(await output, `chosen: ${first?.body.permission.optionId}`);
});

test('a question ends with its turn', async () => {
  const { sessionId } = await ask('sleep', 'ask');
  const { permissionId } = await openOf(sessionId);
  await call(url, 'session.cancel', { sessionId }, main);
  await until('the request is over', async () => {
    const { body } = await request<{ permissions: Permission[] }>(
      'GET',
      `permissions?state=all&sessionId=${sessionId}`,
    );
    return body.permissions[0]?.state === 'cancelled';
  });
  const late = await answer(permissionId, { decision: 'allow' });
  assert.deepEqual([late.status, late.body.error], [410, 'permission_expired']);
});

test('nobody answers, sees or forgets for another owner; the main token does for all', async () => {
  const { sessionId } = await ask('secret', 'ask');
  const { permissionId } = await openOf(sessionId);
  assert.deepEqual([(await answer(permissionId, { decision: 'allow' }, review)).status], [404]);
  const list = await request<{ permissions: Permission[] }>('GET', 'permissions', undefined, review);
  assert.deepEqual(list.body.permissions, []);
  assert.equal((await request('GET', `permissions?sessionId=${sessionId}`, undefined, review)).status, 404);
  const own = await ask('of review', 'ask', review);
  const { permissionId: ofReview } = await openOf(own.sessionId, review);
  assert.equal((await answer(ofReview, { decision: 'deny', scope: 'always' })).status, 200);
  assert.equal(await own.output, 'chosen: no');
  const rules = await request<{ rules: StoredRule[] }>('GET', 'permission-rules', undefined, review);
  const [rule] = rules.body.rules;
  assert.deepEqual([rule?.owner, rule?.createdBy, rule?.decision], ['review', 'main', 'deny']);
  await answer(permissionId, { decision: 'allow', scope: 'always' });
  const { body } = await request<{ rules: StoredRule[] }>('GET', 'permission-rules?owner=main');
  const ofMain = body.rules[0]?.ruleId;
  assert.equal((await request('DELETE', `permission-rules/${ofMain}`, undefined, review)).status, 404);
  assert.equal((await request('DELETE', `permission-rules/${ofMain}`)).status, 200);
});

test('answers are remembered for a session or a folder, and can be forgotten', async () => {
  const first = await ask('npm ci', 'ask');
  await answer((await openOf(first.sessionId)).permissionId, { decision: 'allow', scope: 'always' });
  assert.equal(await first.output, 'chosen: yes');
  assert.equal(await (await ask('npm ci', 'ask')).output, 'chosen: yes', 'without a question');
  const elsewhere = await ask('npm ci', 'ask', main, { workingDirectory: '' });
  await answer((await openOf(elsewhere.sessionId)).permissionId, { decision: 'deny' });
  const other = await ask('npm ci --force', 'ask');
  await answer((await openOf(other.sessionId)).permissionId, { decision: 'deny', scope: 'session' });
  const message = { sessionId: other.sessionId, taskPrompt: 'npm ci --force', routing: { permissions: 'ask' } };
  assert.equal((await call(url, 'session.message', message, main)).result?.output, 'chosen: no');
  const { rules } = (await request<{ rules: StoredRule[] }>('GET', 'permission-rules')).body;
  const always = rules.find(({ scope, owner }) => scope === 'always' && owner === 'main');
  assert.deepEqual(always?.when, { kind: 'execute', command: ['npm', 'ci'], path: null });
  await request('DELETE', `permission-rules/${always?.ruleId}`);
  const again = await ask('npm ci', 'ask');
  await answer((await openOf(again.sessionId)).permissionId, { decision: 'deny' });
  assert.equal(await again.output, 'chosen: no');
  await call(url, 'session.close', { sessionId: other.sessionId }, main);
  const left = (await request<{ rules: StoredRule[] }>('GET', 'permission-rules')).body.rules;
  assert.ok(
    left.every(({ sessionId }) => sessionId !== other.sessionId),
    'rules of a session go with it',
  );
});

test('wrong answers are refused and leave the question open', async () => {
  const { sessionId, output } = await ask('a | b', 'ask');
  const { permissionId } = await openOf(sessionId);
  for (const [body, code] of [
    [{}, 'invalid_request'],
    [{ decision: 'allow', optionId: 'yes' }, 'invalid_request'],
    [{ optionId: 'maybe' }, 'invalid_request'],
    [{ decision: 'perhaps' }, 'invalid_request'],
    [{ decision: 'allow', scope: 'forever' }, 'invalid_request'],
    [{ decision: 'allow', reason: 'x'.repeat(2001) }, 'invalid_request'],
    [{ decision: 'allow', owner: 'main' }, 'invalid_request'],
    [{ decision: 'allow', scope: 'always' }, 'permission_not_remembered'],
  ] as const) {
    const refused = await answer(permissionId, body);
    assert.deepEqual([refused.status, refused.body.error], [400, code], JSON.stringify(body).slice(0, 60));
  }
  assert.equal((await answer('perm_none', { decision: 'allow' })).status, 404);
  await answer(permissionId, { optionId: 'no' });
  assert.equal(await output, 'chosen: no');
});

/** The turn that asks. */
const OPEN_TURN = {
  ...{ id: 'turn', session_key: 'k', owner: 'main', tenant: 'default', instance: 'a', method: 'session.start' },
  ...{
    request_id: '1',
    request_fingerprint: '',
    idempotency_key: '',
    prompt: '""',
    attachments: '[]',
    status: 'running',
  },
  base: '{}',
  ...{ outcome: '', first_seq: 1, last_seq: 0, created_at: 1, ended_at: null },
};

for (const engine of engines) {
  describe(`open questions on ${engine}`, () => {
    const places = databasePlaces(engine);
    const question: PermissionQuestion = { toolCallId: 't', title: 'x', toolKind: 'execute', options: OPTIONS };
    const never = new AbortController().signal;
    async function open(instance: string, given?: Database<BridgeSchema>) {
      const database = given ?? (await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }));
      if (given === undefined) await database.query.insertInto('turns').values(OPEN_TURN).execute();
      const clock = createFakeClock();
      const made: string[] = [];
      const announced: BridgeEvent[] = [];
      const makeId = (prefix: string) => `${prefix}${instance}${made.push(prefix)}`;
      const rules = { permissions: 'allow' as const, permission_rules: [], permission_timeout: 600_000 };
      const permissions = await createPermissions({
        database,
        instance,
        lease: { hasChanged: () => true },
        clock,
        makeId,
        logger: silentLogger,
        settings: rules,
        announce: (event) => void announced.push(event),
      });
      const names = { sessionKey: 'k', sessionId: 's', owner: 'main', turnId: 'turn', folder: '/w' };
      const turn = permissions.forTurn({ ...names, setting: 'ask', editor: undefined });
      const waiting = () => until('an open question', async () => (await permissions.list(MAIN, {}))[0]?.permissionId);
      return { database, clock, permissions, turn, waiting, announced };
    }

    test('a question for people is announced once it is stored, without what it asks for', async () => {
      const { clock, permissions, turn, waiting, announced } = await open('a');
      void turn.ask(question, never);
      const permissionId = (await waiting()) ?? '';
      await until('the event', () => announced.length > 0);
      const expiresAt = new Date(clock.now() + 600_000).toISOString();
      const data = { permissionId, sessionId: 's', owner: 'main', expiresAt };
      assert.deepEqual(announced, [{ event: 'session.needs_input', data }]);
      await permissions.stop();
    });

    test('nobody answers: after ten minutes the answer is no, and an answer at that very moment is whole', async () => {
      const { clock, permissions, turn, waiting } = await open('a');
      const chosen = turn.ask(question, never);
      await waiting();
      await clock.advance(600_000);
      assert.equal((await chosen).optionId, undefined);
      assert.equal((await permissions.list(MAIN, { state: 'all' }))[0]?.state, 'expired');
      const second = turn.ask(question, never);
      const id = (await waiting()) ?? '';
      await clock.advance(599_999);
      const answered = permissions.answer(MAIN, id, { decision: 'allow' }).then(
        () => 'yes',
        (error: unknown) => errorCode(error),
      );
      const [, how] = await Promise.all([clock.advance(1), answered]);
      assert.ok(how === 'yes' || how === 'PERMISSION_EXPIRED', how);
      assert.equal((await second).optionId, how === 'yes' ? 'yes' : undefined);
      await permissions.stop();
    });

    test('a restart cancels what was open, and a stop of the bridge does too', async () => {
      const first = await open('a');
      void first.turn.ask(question, never);
      await first.waiting();
      await first.database.query.deleteFrom('turns').execute();
      const second = await open('b', first.database);
      if (engine === 'postgres') await second.clock.advance(1_500);
      const state = async () => (await second.permissions.list(MAIN, { state: 'all' })).at(-1)?.state;
      await until('it is cancelled', async () => (await state()) === 'cancelled');
      await first.database.query.insertInto('turns').values(OPEN_TURN).execute();
      const chosen = second.turn.ask(question, never);
      await second.waiting();
      await second.permissions.stop();
      assert.equal((await chosen).optionId, undefined);
      assert.equal((await second.permissions.list(MAIN, { state: 'all' }))[0]?.state, 'cancelled');
      await first.permissions.stop();
    });

    if (engine === 'postgres') {
      test('an answer that another instance has stored is learnt within a second', async () => {
        const first = await open('a');
        const chosen = first.turn.ask(question, never);
        const id = (await first.waiting()) ?? '';
        const other = await open('b', first.database);
        await other.permissions.answer(MAIN, id, { decision: 'deny', reason: 'later' });
        await first.clock.advance(1_000);
        assert.deepEqual(await chosen, { optionId: 'no', reason: 'later', answeredBy: 'main', permissionId: id });
        await Promise.all([first.permissions.stop(), other.permissions.stop()]);
      });
    }

    test('an answer, a cancel or a stop right after a question is stored is not lost', async () => {
      const { database, permissions: reader } = await open('a');
      const stored = Promise.withResolvers<void>();
      const slow: Database<BridgeSchema> = {
        ...database,
        async write(statements, refusals) {
          const results = await database.write(statements, refusals);
          // The bridge learns late that its question is stored.
          if (statements[0]?.sql.startsWith('insert into "permissions"')) await stored.promise;
          return results;
        },
      };
      const { permissions, turn } = await open('a2', slow);
      const listed = (count: number) =>
        until('the questions', async () => (await reader.list(MAIN, {})).length === count);
      const answered = turn.ask(question, never);
      await listed(1);
      await permissions.answer(MAIN, (await reader.list(MAIN, {}))[0]?.permissionId ?? '', { decision: 'allow' });
      const stopping = new AbortController();
      const cancelled = turn.ask(question, stopping.signal);
      const left = turn.ask(question, never);
      await listed(2);
      stopping.abort();
      const stopped = permissions.stop();
      stored.resolve();
      const replies = await Promise.all([answered, cancelled, left]);
      assert.deepEqual(
        replies.map(({ optionId }) => optionId),
        ['yes', undefined, undefined],
      );
      await stopped;
      await listed(0);
      assert.equal((await turn.ask(question, never)).optionId, undefined, 'after a stop nobody is asked');
      await reader.stop();
    });

    test('a cancelled question allows nothing, and one question does not end the others of its turn', async () => {
      const { permissions, turn, waiting } = await open('a');
      const stopped = new AbortController();
      const asked: ReturnType<AskPermission>[] = [turn.ask(question, stopped.signal), turn.ask(question, never)];
      await until('both wait', async () => (await permissions.list(MAIN, {})).length === 2);
      stopped.abort();
      assert.equal((await asked[0])?.optionId, undefined);
      await until('one is left', async () => (await permissions.list(MAIN, {})).length === 1);
      await permissions.answer(MAIN, (await waiting()) ?? '', { optionId: 'yes' });
      assert.equal((await asked[1])?.optionId, 'yes');
      const last = turn.ask(question, never);
      await waiting();
      turn.end();
      assert.equal((await last).optionId, undefined);
      await permissions.stop();
    });
  });
}
