import assert from 'node:assert/strict';
import { mkdtemp, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { PermissionQuestion } from '../../../src/bridge/agents/agent-provider.ts';
import type { Permission } from '../../../src/bridge/contract/workbench.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { AskingTurn } from '../../../src/bridge/workbench/permission-rows.ts';
import { createPermissions, type PermissionSettings } from '../../../src/bridge/workbench/permissions.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { inTime } from '../../kit/in-time.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];
const QUESTION: PermissionQuestion = {
  ...{ toolCallId: 't', title: 'x', toolKind: 'execute', options: OPTIONS },
  input: { command: 'make all' },
};
const never = new AbortController().signal;
const SETTINGS: PermissionSettings = { permissions: 'allow', permission_rules: [], permission_timeout: 600_000 };
const MEMBER: Principal = { ...principalOf('user:a'), teams: ['t'] };
const READER: Principal = { ...MAIN, role: 'readonly' };

const ruleFor = (when: object, decision: 'allow' | 'deny') => ({
  when: { kind: '', command: [], path: '', ...when },
  // biome-ignore lint/suspicious/noThenProperty: the name of the setting; its value is a text
  then: decision,
});

describe('questions of turns on sqlite', () => {
  const places = databasePlaces('sqlite');

  async function open(settings: Partial<PermissionSettings> = {}, broken: Partial<Database<BridgeSchema>> = {}) {
    const opened = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
    const database = { ...opened, ...broken };
    const clock = createFakeClock();
    let made = 0;
    const changes: Permission[] = [];
    const permissions = await createPermissions({
      database,
      instance: 'own',
      lease: { hasChanged: () => true },
      clock,
      makeId(prefix) {
        made += 1;
        return `${prefix}${String(made).padStart(4, '0')}`;
      },
      logger: silentLogger,
      settings: { ...SETTINGS, ...settings },
    });
    permissions.onChange((permission) => changes.push(permission));
    const turnOf = (given: Partial<AskingTurn> = {}) => {
      const turn = permissions.forTurn({
        ...{ sessionKey: 'k', sessionId: 's', owner: 'main', turnId: 'turn', folder: '/w' },
        ...{ setting: 'ask', editor: undefined },
        ...given,
      });
      return { ...turn, ask: (...asked: Parameters<typeof turn.ask>) => inTime('an answer', turn.ask(...asked)) };
    };
    const openOnes = (count: number) =>
      until(`${count} open questions`, async () => {
        const found = await permissions.list(MAIN, {});
        return found.length === count ? found : undefined;
      });
    return { permissions, clock, turnOf, openOnes, changes, database };
  }

  for (const isReadLost of [false, true]) {
    const how = isReadLost ? 'when it is given again' : 'immediately';
    test(`an answer that was stored although the store failed continues its turn ${how}`, async () => {
      let lost = 0;
      const lose = () => {
        lost -= 1;
        return Promise.reject(new AppError('STORAGE_UNAVAILABLE'));
      };
      const inner = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      const write = (async (...given: Parameters<typeof inner.write>) => {
        const results = await inner.write(...given);
        return lost > 0 ? lose() : results;
      }) as typeof inner.write;
      const readKeyed = (async (...given: Parameters<typeof inner.readKeyed>) =>
        lost === 1 && isReadLost ? lose() : inner.readKeyed(...given)) as typeof inner.readKeyed;
      const { query, statement, read } = inner;
      const { permissions, turnOf, openOnes } = await open({}, { query, statement, read, write, readKeyed });
      const reply = turnOf().ask(QUESTION, never);
      const [asked] = await openOnes(1);
      const answer = () => permissions.answer(MAIN, asked?.permissionId ?? '', { decision: 'allow' });
      lost = isReadLost ? 2 : 1;
      await assert.rejects(answer(), { code: 'STORAGE_UNAVAILABLE' });
      await until('all that is to fail', () => lost === 0);
      if (isReadLost) await assert.rejects(answer(), { code: 'PERMISSION_ANSWERED' });
      assert.equal((await reply).optionId, 'yes');
      await permissions.stop();
    });
  }

  test('a turn asks people, unless the call, a rule or an editor decides', async () => {
    const given = [
      ruleFor({ command: ['git'] }, 'allow'),
      ruleFor({ kind: 'delete' }, 'deny'),
      ruleFor({ path: '/w/.env' }, 'deny'),
    ];
    const { permissions, turnOf } = await open({ permission_rules: given });
    const asked: string[] = [];
    const editor: AskingTurn['editor'] = async ({ title }) => {
      asked.push(title);
      return { optionId: 'by the editor' };
    };
    const answer = async (turn: Partial<AskingTurn>, question: Partial<PermissionQuestion> = {}) =>
      (await turnOf(turn).ask({ ...QUESTION, ...question }, never)).optionId;
    assert.equal(await answer({ setting: undefined }), 'yes');
    assert.equal(await answer({ setting: 'allow' }), 'yes');
    assert.equal(await answer({ setting: 'deny' }), 'no');
    assert.equal(await answer({ setting: 'ask' }, { input: { command: 'git push' } }), 'yes');
    assert.equal(await answer({ setting: 'allow' }, { toolKind: 'delete' }), 'no');
    assert.equal(await answer({ setting: 'allow' }, { toolKind: 'edit', input: { path: '.env' } }), 'no');
    assert.equal(await answer({ setting: undefined, editor }), 'by the editor');
    assert.equal(await answer({ setting: 'allow', editor }), 'yes', 'the call says otherwise');
    assert.deepEqual(asked, ['x']);
    assert.equal(
      await answer({ setting: 'allow' }, { options: OPTIONS.slice(1) }),
      undefined,
      'there is no such option',
    );
    assert.deepEqual(
      [turnOf().asks, turnOf({ setting: 'allow' }).asks, turnOf({ setting: undefined, editor }).asks],
      [true, false, true],
    );
    assert.equal(turnOf({ setting: undefined }).asks, false);
    await permissions.stop();
  });

  test('hostile: a rule for a folder that is a link counts for where it leads', async () => {
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-rules-')));
    await symlink(folder, join(folder, 'link'));
    const { permissions, turnOf } = await open({
      permission_rules: [ruleFor({ path: join(folder, 'link/secrets/**') }, 'deny')],
    });
    const input = { path: join(folder, 'secrets/key') };
    const turn = turnOf({ setting: 'allow' });
    assert.equal((await turn.ask({ ...QUESTION, toolKind: 'edit', input }, never)).optionId, 'no');
    assert.equal((await turn.deniedPaths(['read'], folder))?.(input.path), true);
    await permissions.stop();
    await rm(folder, { recursive: true });
  });

  test('new rules and a new time count from the next question on', async () => {
    const { permissions, turnOf, openOnes, clock } = await open();
    permissions.reload({
      ...SETTINGS,
      permission_rules: [ruleFor({ command: ['make'] }, 'deny')],
      permission_timeout: 1000,
    });
    assert.equal((await turnOf().ask(QUESTION, never)).optionId, 'no');
    const asked = turnOf().ask({ ...QUESTION, input: { command: 'ls' } }, never);
    const [request] = await openOnes(1);
    assert.equal(request?.expiresAt, clock.now() + 1000);
    await clock.advance(1000);
    assert.equal((await asked).optionId, undefined);
    await permissions.stop();
  });

  test('a turn has at most 64 open questions, and none once it is over', async () => {
    const { permissions, turnOf, openOnes } = await open();
    const turn = turnOf();
    const asked = Array.from({ length: 65 }, () => turn.ask(QUESTION, never));
    assert.deepEqual(await asked[64], { optionId: undefined });
    await openOnes(64);
    const other = turnOf();
    const one = other.ask(QUESTION, never);
    await openOnes(65);
    turn.end();
    for (const reply of await Promise.all(asked)) assert.equal(reply.optionId, undefined);
    await openOnes(1);
    assert.deepEqual(await turn.ask(QUESTION, never), { optionId: undefined });
    other.end();
    await one;
    await openOnes(0);
    await permissions.stop();
  });

  test('an answered question makes room for another', async () => {
    const { permissions, turnOf, openOnes } = await open();
    const turn = turnOf();
    for (let count = 0; count < 70; count += 1) {
      const asked = turn.ask(QUESTION, never);
      const [request] = await openOnes(1);
      await permissions.answer(MAIN, request?.permissionId ?? '', { decision: 'allow' });
      assert.equal((await asked).optionId, 'yes');
    }
    await permissions.stop();
  });

  test('the request and its answer are announced, and the agent learns under which id it asks', async () => {
    const { permissions, turnOf, openOnes, changes } = await open();
    const shown: string[] = [];
    const asked = turnOf().ask(QUESTION, never, ({ permissionId }) => shown.push(permissionId));
    const [request] = await openOnes(1);
    const id = request?.permissionId ?? '';
    await until('it is shown', () => shown.length > 0);
    const team: Principal = { ...MAIN, id: 'main', member: principalOf('user:a') };
    const view = await permissions.answer(team, id, { decision: 'deny', reason: 'later' });
    assert.deepEqual([view.state, view.answeredBy], ['denied', 'user:a'], 'the person, where a team is at work');
    assert.deepEqual(await asked, { optionId: 'no', reason: 'later', answeredBy: 'user:a', permissionId: id });
    assert.deepEqual(shown, [id]);
    assert.deepEqual(
      changes.map(({ permissionId, state }) => [permissionId, state]),
      [
        [id, 'open'],
        [id, 'denied'],
      ],
    );
    await permissions.stop();
  });

  test('who does not see a request does not find it, and who may only read does not answer it', async () => {
    const { permissions, turnOf, openOnes, clock } = await open();
    const asked = turnOf({ owner: 'team:t' }).ask(QUESTION, never);
    const [request] = await openOnes(1);
    const id = request?.permissionId ?? '';
    const allow = { decision: 'allow' } as const;
    await assert.rejects(permissions.answer(principalOf('review'), id, allow), {
      code: 'PERMISSION_NOT_FOUND',
      details: { permissionId: id },
    });
    await assert.rejects(permissions.answer(MAIN, 'perm_x', allow), { code: 'PERMISSION_NOT_FOUND' });
    await assert.rejects(permissions.answer(READER, id, allow), { code: 'FORBIDDEN' });
    await permissions.answer(MEMBER, id, allow);
    await assert.rejects(permissions.answer(MEMBER, id, allow), { code: 'PERMISSION_ANSWERED' });
    assert.equal((await asked).optionId, 'yes');
    const late = turnOf().ask(QUESTION, never);
    const [open2] = await openOnes(1);
    clock.stepWall(600_000);
    await assert.rejects(permissions.answer(MAIN, open2?.permissionId ?? '', allow), { code: 'PERMISSION_EXPIRED' });
    await permissions.stop();
    await late;
  });

  test('lists show the requests of those whom a caller sees: open ones oldest first, all of them newest first', async () => {
    const { permissions, turnOf, openOnes } = await open();
    const controllers: AbortController[] = [];
    const ask = (given: Partial<AskingTurn>) => {
      const stopped = new AbortController();
      controllers.push(stopped);
      void turnOf(given).ask(QUESTION, stopped.signal);
    };
    ask({ owner: 'user:a' });
    await openOnes(1);
    ask({ owner: 'team:t', sessionKey: 'other' });
    await openOnes(2);
    ask({ owner: 'user:a', sessionKey: 'other' });
    await openOnes(3);
    ask({ owner: 'review' });
    await openOnes(4);
    const ids = async (principal: Principal, query: Parameters<typeof permissions.list>[1] = {}) =>
      (await permissions.list(principal, query)).map(({ permissionId }) => Number(permissionId.slice(-4)));
    assert.deepEqual(await ids(MAIN), [1, 2, 3, 4]);
    assert.deepEqual(await ids(MEMBER), [1, 2, 3]);
    assert.deepEqual(await ids(MEMBER, { state: 'all' }), [3, 2, 1]);
    assert.deepEqual(await ids(MEMBER, { sessionKey: 'other' }), [2, 3]);
    assert.deepEqual(await ids(MEMBER, { owner: 'team:t' }), [2]);
    assert.deepEqual(await ids(MEMBER, { owner: 'review' }), []);
    assert.deepEqual(await ids(MAIN, { owner: 'review' }), [4]);
    controllers[0]?.abort();
    await openOnes(3);
    assert.deepEqual(await ids(MEMBER), [2, 3]);
    assert.deepEqual(await ids(MEMBER, { state: 'all' }), [3, 2, 1]);
    await permissions.stop();
  });

  test('a remembered answer counts for its session, or for its folder, until it is removed by someone who may', async () => {
    const { permissions, turnOf, openOnes } = await open();
    const remember = async (given: Partial<AskingTurn>, scope: 'session' | 'always', decision: 'allow' | 'deny') => {
      const asked = turnOf(given).ask(QUESTION, never);
      const [request] = await openOnes(1);
      await permissions.answer(MAIN, request?.permissionId ?? '', { decision, scope });
      return (await asked).optionId;
    };
    assert.equal(await remember({ owner: 'user:a' }, 'session', 'allow'), 'yes');
    assert.equal((await turnOf({ owner: 'user:a' }).ask(QUESTION, never)).optionId, 'yes');
    assert.equal(await remember({ owner: 'user:a', sessionKey: 'other' }, 'always', 'deny'), 'no');
    assert.equal((await turnOf({ owner: 'user:a', sessionKey: 'third' }).ask(QUESTION, never)).optionId, 'no');
    const elsewhere = { owner: 'user:a', sessionKey: 'third', folder: '/elsewhere' };
    assert.equal(await remember(elsewhere, 'session', 'allow'), 'yes', 'another folder is asked for again');
    assert.equal(await remember({ owner: 'team:t' }, 'always', 'allow'), 'yes', 'another owner, too');
    const scopes = async (principal: Principal, owner?: string) =>
      (await permissions.rules(principal, owner)).map((rule) => `${rule.owner} ${rule.scope} ${rule.decision}`);
    assert.deepEqual(await scopes(MEMBER), [
      'team:t always allow',
      'user:a session allow',
      'user:a always deny',
      'user:a session allow',
    ]);
    assert.deepEqual(await scopes(MEMBER, 'team:t'), ['team:t always allow']);
    assert.deepEqual(await scopes(principalOf('review')), []);
    assert.deepEqual(await scopes(principalOf('review'), 'user:a'), []);
    const [rule] = await permissions.rules(MAIN, 'team:t');
    const ruleId = rule?.ruleId ?? '';
    await assert.rejects(permissions.removeRule(principalOf('review'), ruleId), { code: 'PERMISSION_RULE_NOT_FOUND' });
    await assert.rejects(permissions.removeRule(MAIN, 'rule_x'), { code: 'PERMISSION_RULE_NOT_FOUND' });
    await assert.rejects(permissions.removeRule(READER, ruleId), { code: 'FORBIDDEN' });
    await permissions.removeRule(MEMBER, ruleId);
    assert.deepEqual(await scopes(MEMBER, 'team:t'), []);
    await permissions.stop();
  });

  test('programs that a rule denies are not started as MCP servers, and none where agents may only read', async () => {
    const stdio = { type: 'stdio', name: 'tools', command: 'npx', args: ['evil', 'x'], env: [] } as const;
    const remote = { type: 'http', name: 'far', url: 'https://mcp.example/', headers: [] } as const;
    const { permissions } = await open({
      permission_rules: [ruleFor({ command: ['npx', 'evil'] }, 'deny'), ruleFor({ command: ['fine'] }, 'allow')],
    });
    permissions.checkServers([remote, { ...stdio, command: 'fine' }, { ...stdio, args: ['good'] }], '/w');
    assert.throws(() => permissions.checkServers([remote, stdio], '/w'), {
      code: 'MCP_SERVER_REFUSED',
      details: { name: 'tools', reason: 'a rule of bridge.permission_rules denies its command' },
    });
    await permissions.stop();
    const reading = await open({ permissions: 'deny' });
    assert.throws(() => reading.permissions.checkServers([remote], '/w'), {
      code: 'MCP_SERVER_REFUSED',
      details: { name: 'far', reason: 'agents may only read here (bridge.permissions is deny)' },
    });
    reading.permissions.checkServers([], '/w');
    await reading.permissions.stop();
  });

  test('a question that cannot be stored allows nothing, and a signal that has ended asks nobody', async () => {
    const { permissions, turnOf, database, openOnes } = await open();
    const stopped = new AbortController();
    stopped.abort();
    assert.equal((await turnOf().ask(QUESTION, stopped.signal)).optionId, undefined);
    await openOnes(0);
    await permissions.stop();
    await database.close();
    assert.deepEqual(await turnOf().ask(QUESTION, never), { optionId: undefined });
  });
});
