import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { readForm } from '../../../src/bridge/agents/question-form.ts';
import type { Permission, PermissionAnswer } from '../../../src/bridge/contract/workbench.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createPermissions } from '../../../src/bridge/workbench/permissions.ts';
import { createTrestleClient, TrestleError } from '../../../src/client/trestle-client.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { FORM_SCHEMA } from '../../kit/scripted-work.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const form = readForm(FORM_SCHEMA) ?? assert.fail('the form can be shown');
const QUESTION = { toolCallId: '', title: 'Where to deploy?', toolKind: 'question', options: [], form };
const VALUES = { place: 'live', sure: true };

/** Asks its question, and says what was answered. */
const asker = createScriptedProvider('asker', async ({ ask, signal, report }) => {
  const { values, reason } = (await ask?.(QUESTION, signal)) ?? {};
  if (signal.aborted) return { kind: 'cancelled', output: '' };
  report({ kind: 'permission', title: QUESTION.title, decision: values === undefined ? 'declined' : 'answered' });
  const output = values === undefined ? `declined ${reason ?? ''}` : JSON.stringify(values);
  return { kind: 'completed', output, stopReason: 'end_turn' };
});
const settings = `bridge:
  auth_token: ${MAIN_TOKEN}
  review_auth_token: ${REVIEW_TOKEN}
  permission_rules:
    - { when: { kind: execute }, then: deny }
`;
// biome-ignore lint/suspicious/noThenProperty: the name of the setting; its value is a text
const ruleFor = (when: object, decision: 'allow' | 'deny') => ({ when, then: decision });
const { url } = await startBridge({ after }, { providers: [asker], settings });
const main = createTrestleClient({ url, token: MAIN_TOKEN });
const review = createTrestleClient({ url, token: REVIEW_TOKEN });
after(() => {
  main.close();
  review.close();
});

let count = 0;
function start(permissions?: 'ask' | 'allow' | 'deny', client = main) {
  count += 1;
  const sessionId = `q${count}`;
  const session = client.session(sessionId, permissions === undefined ? {} : { routing: { permissions } });
  const turn = session.start('deploy it');
  const output = turn.result.then((result) => result.output);
  const question = () =>
    until('the question', async () => (await main.permissions.list()).find((one) => one.sessionId === sessionId));
  return { session, turn, output, question };
}

async function refusal(answered: Promise<unknown>): Promise<readonly [string, string]> {
  try {
    await answered;
  } catch (error) {
    if (error instanceof TrestleError) return [error.code, error.message];
    throw error;
  }
  return assert.fail('it was not refused');
}

test('a question waits for a person, is listed with its form, and its values reach the agent and nobody else', async () => {
  const seen: Permission[] = [];
  const connected = Promise.withResolvers<void>();
  const stop = main.live.watch(['permissions'], (change) => {
    connected.resolve();
    if (change?.item && 'permissionId' in change.item) seen.push(change.item);
  });
  await connected.promise;
  const { session, output, question } = start('ask');
  const { permissionId, ...asked } = await question();
  assert.deepEqual([asked.title, asked.toolKind, asked.state, asked.options], [QUESTION.title, 'question', 'open', []]);
  assert.deepEqual(asked.form, form);
  // Of changes that follow each other closely the socket tells the last one.
  const told = (state: string) =>
    until(`${state} on the live socket`, () =>
      seen.some((one) => one.permissionId === permissionId && one.state === state),
    );
  await told('open');
  const [listed] = (await main.sessions.list({ state: 'needs_you' })).sessions;
  assert.deepEqual([listed?.sessionId, listed?.openPermissions], [session.sessionId, 1]);
  const answered = await main.permissions.answer(permissionId, { values: VALUES });
  assert.deepEqual([answered.state, answered.answeredBy, answered.optionId], ['answered', 'main', '']);
  assert.deepEqual(JSON.parse(await output), VALUES);
  await told('answered');
  stop();
  assert.equal(JSON.stringify([seen, answered]).includes('"place":"live"'), false, 'values are not shown');
  const { updates } = await main.sessions.updates(session.sessionId);
  const decided = updates.find(({ kind }) => kind === 'permission');
  assert.deepEqual(decided && { ...decided, seq: 0, at: 0, turnId: '' }, {
    ...{ seq: 0, at: 0, turnId: '', kind: 'permission', state: 'answered', title: QUESTION.title },
  });
});

test('an answer that does not fit is refused with the field, and the question stays open', async () => {
  const { output, question } = start('ask');
  const { permissionId } = await question();
  for (const [answer, code, message] of [
    [{ values: {} }, 'INVALID_REQUEST', /values\.place is missing/],
    [{ values: { ...VALUES, place: 'mars' } }, 'INVALID_REQUEST', /values\.place must be one of: staging, live/],
    [{ values: { ...VALUES, count: 10 } }, 'INVALID_REQUEST', /values\.count must be at most 9/],
    [{ values: { ...VALUES, other: 'x' } }, 'INVALID_REQUEST', /no field "other"/],
    [{ values: { ...VALUES, note: { deep: { er: 1 } } } }, 'INVALID_REQUEST', /values/],
    [{ values: Object.fromEntries(Array.from({ length: 33 }, (_none, at) => [at, 'x'])) }, 'INVALID_REQUEST', /values/],
    [{ decision: 'allow' }, 'INVALID_REQUEST', /values\.place is missing/],
    [{ optionId: 'yes' }, 'INVALID_REQUEST', /give values, or decision: deny/],
    [{ values: VALUES, decision: 'deny' }, 'INVALID_REQUEST', /only one of them/],
    [{ values: VALUES, scope: 'always' }, 'PERMISSION_NOT_REMEMBERED', /cannot be remembered/],
  ] as const) {
    const refused = await refusal(main.permissions.answer(permissionId, answer as PermissionAnswer));
    assert.equal(refused[0], code, JSON.stringify(answer).slice(0, 80));
    assert.match(refused[1], message);
  }
  await main.permissions.answer(permissionId, { decision: 'deny', reason: 'ask Ann' });
  assert.equal(await output, 'declined ask Ann');
});

test('of two answers the first counts, and the second learns of it', async () => {
  const { output, question } = start('ask');
  const { permissionId } = await question();
  const both = await Promise.allSettled([
    main.permissions.answer(permissionId, { values: VALUES }),
    main.permissions.answer(permissionId, { values: { ...VALUES, place: 'staging' } }),
  ]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  const place = both[0]?.status === 'fulfilled' ? 'live' : 'staging';
  assert.deepEqual(JSON.parse(await output), { ...VALUES, place });
  const [code] = await refusal(main.permissions.answer(permissionId, { decision: 'deny' }));
  assert.equal(code, 'PERMISSION_ANSWERED');
});

test('a question ends with its turn, and another owner neither sees nor answers it', async () => {
  const { session, question } = start('ask');
  const { permissionId } = await question();
  assert.deepEqual(await review.permissions.list(), []);
  assert.equal((await refusal(review.permissions.answer(permissionId, { values: VALUES })))[0], 'PERMISSION_NOT_FOUND');
  await session.cancel();
  await until('it is cancelled', async () => {
    const [row] = await main.permissions.list({ state: 'all', sessionId: session.sessionId });
    return row?.state === 'cancelled';
  });
  assert.equal((await refusal(main.permissions.answer(permissionId, { values: VALUES })))[0], 'PERMISSION_EXPIRED');
});

test('without a person a question is declined: no setting makes up values', async () => {
  for (const permissions of [undefined, 'allow', 'deny'] as const) {
    assert.equal(await start(permissions).output, 'declined ', String(permissions));
  }
});

/** The turn that asks. */
const OPEN_TURN = {
  ...{ id: 'turn', session_key: 'k', owner: 'main', tenant: 'default', instance: 'a', method: 'session.start' },
  ...{ request_id: '1', request_fingerprint: '', idempotency_key: '', prompt: '""', attachments: '[]' },
  ...{ status: 'running', base: '{}', outcome: '', first_seq: 1, last_seq: 0, created_at: 1, ended_at: null },
};

for (const engine of engines) {
  describe(`questions on ${engine}`, () => {
    const places = databasePlaces(engine);
    const never = new AbortController().signal;
    async function open(instance: string, given?: Database<BridgeSchema>, rules: readonly object[] = []) {
      const database = given ?? (await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }));
      if (given === undefined) await database.query.insertInto('turns').values(OPEN_TURN).execute();
      const clock = createFakeClock();
      const made: string[] = [];
      const permissions = await createPermissions({
        ...{ database, instance, clock, logger: silentLogger, lease: { hasChanged: () => true } },
        makeId: (prefix) => `${prefix}${instance}${made.push(prefix)}`,
        settings: { permissions: 'allow' as const, permission_rules: rules as never, permission_timeout: 600_000 },
      });
      const names = { sessionKey: 'k', sessionId: 's', owner: 'main', turnId: 'turn', folder: '/w' };
      const turn = permissions.forTurn({ ...names, setting: 'ask', editor: undefined });
      const waiting = () => until('an open question', async () => (await permissions.list(MAIN, {}))[0]?.permissionId);
      const kept = async () =>
        (await database.query.selectFrom('permissions').select('given').execute()).map(({ given: values }) => values);
      return { database, clock, permissions, turn, waiting, kept };
    }

    test('values are kept only until the agent has them', async () => {
      const { permissions, turn, waiting, kept } = await open('a');
      const answered = turn.ask(QUESTION, never);
      const permissionId = await waiting();
      await permissions.answer(MAIN, permissionId, { values: VALUES });
      assert.deepEqual(await answered, { optionId: undefined, values: VALUES, answeredBy: 'main', permissionId });
      await until('the values are gone', async () => (await kept()).join('') === '');
      await permissions.stop();
    });

    test('values that nobody took are removed by the next start', async () => {
      const first = await open('a');
      void first.turn.ask(QUESTION, never);
      await first.waiting();
      const left = { state: 'answered', given: JSON.stringify(VALUES) } as const;
      await first.database.query.updateTable('permissions').set(left).execute();
      await first.database.query.deleteFrom('turns').execute();
      const second = await open('b', first.database);
      assert.deepEqual(await second.kept(), ['']);
      await Promise.all([first.permissions.stop(), second.permissions.stop()]);
    });

    test('a question that nobody answers expires, and an answer at that very moment is whole', async () => {
      const { clock, permissions, turn, waiting } = await open('a');
      const expired = turn.ask(QUESTION, never);
      const permissionId = await waiting();
      await clock.advance(600_000);
      assert.deepEqual(await expired, { optionId: undefined, permissionId });
      assert.equal((await permissions.list(MAIN, { state: 'all' }))[0]?.state, 'expired');
      const second = turn.ask(QUESTION, never);
      const id = await waiting();
      await clock.advance(599_999);
      const answered = permissions.answer(MAIN, id, { values: VALUES }).then(
        () => 'yes',
        (error: unknown) => errorCode(error),
      );
      const [, how] = await Promise.all([clock.advance(1), answered]);
      const expected =
        how === 'yes' ? { optionId: undefined, values: VALUES, answeredBy: 'main' } : { optionId: undefined };
      assert.deepEqual(await second, { ...expected, permissionId: id });
      await permissions.stop();
    });

    test('a rule that allows answers no question, and one that denies declines it', async () => {
      const when = { kind: 'question', command: [], path: '' };
      const allowing = await open('a', undefined, [ruleFor(when, 'allow')]);
      const asked = allowing.turn.ask(QUESTION, never);
      await allowing.permissions.answer(MAIN, await allowing.waiting(), { values: VALUES });
      assert.deepEqual((await asked).values, VALUES);
      const denying = await open('b', allowing.database, [ruleFor(when, 'deny')]);
      assert.deepEqual(await denying.turn.ask(QUESTION, never), { optionId: undefined, rule: { text: 'question' } });
      await Promise.all([allowing.permissions.stop(), denying.permissions.stop()]);
    });

    if (engine === 'postgres') {
      test('values that were given to another instance reach the one that asks, and are removed', async () => {
        const first = await open('a');
        const answered = first.turn.ask(QUESTION, never);
        const id = await first.waiting();
        const other = await open('b', first.database);
        await other.permissions.answer(MAIN, id, { values: VALUES });
        await first.clock.advance(1_000);
        assert.deepEqual(await answered, { optionId: undefined, values: VALUES, answeredBy: 'main', permissionId: id });
        await until('the values are gone', async () => (await first.kept()).join('') === '');
        await Promise.all([first.permissions.stop(), other.permissions.stop()]);
      });
    }
  });
}
