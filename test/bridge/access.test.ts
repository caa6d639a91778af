import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BridgeAccessOptions, createBridgeAccess, forTeam } from '../../src/bridge/access.ts';
import { principalOf } from '../../src/bridge/principal.ts';
import type { NotedFailure } from '../../src/platform/http/failure-throttle.ts';
import type { RequestHead } from '../../src/platform/http/surface.ts';
import type { Owner, OwnerTeam } from '../../src/platform/identity/owner.ts';
import type { Credential, Principal } from '../../src/platform/identity/principal.ts';

const NOW = 1_000_000_000;
const COMMAND = 'command-token-3f2a';
const team = (id: string, bridge = true): OwnerTeam => ({
  ...{ id, allowed: undefined, bridge, plan: '', budget: undefined },
  bucket: { id: `team:${id}`, name: 'the team', limits: {} },
});

interface LiveCredential extends Credential {
  end(): void;
}

function credential(changes: Partial<Credential> = {}): LiveCredential {
  let isLive = true;
  const listeners: (() => void)[] = [];
  return {
    id: 'c',
    owner: { teams: [team('t'), team('u', false)] } as unknown as Owner,
    loggedInAt: NOW,
    isLive: () => isLive,
    onEnd(listener) {
      listeners.push(listener);
      return () => undefined;
    },
    end() {
      isLive = false;
      for (const listener of listeners) listener();
    },
    ...changes,
  };
}
const ann = (changes: Partial<Principal> = {}): Principal => ({
  ...principalOf('user:ann'),
  credential: credential(),
  ...changes,
});

interface World extends Partial<Omit<BridgeAccessOptions, 'settings'>> {
  readonly main?: string;
  readonly review?: string;
  readonly origins?: readonly string[];
  readonly people?: Readonly<Record<string, Principal>>;
}

const settingsOf = ({ main = 'main-token', review = 'review-token', origins = [] }: World) => ({
  bridge: {
    auth_token: main,
    review_auth_token: review,
    allowed_origins: [...origins],
    app_origin: 'https://app.example',
  },
  distributed: { task_forward_token: 'forward-token', local_node_id: 'b' },
});

/** The access of a bridge, with static tokens and with people by their tokens. */
function accessOf(world: World = {}) {
  const floods: string[] = [];
  const ignored: string[] = [];
  const { main: _main, review: _review, origins: _origins, people, ...changes } = world;
  const access = createBridgeAccess({
    settings: settingsOf(world),
    ...(people !== undefined && {
      identify: (head: RequestHead) => people[(head.headers.authorization ?? '').replace('Bearer ', '')],
    }),
    commandToken: COMMAND,
    throttle: { note: () => ({ firstOverLimit: false }) },
    clock: { now: () => NOW },
    onFlood: (address) => floods.push(address),
    onIgnoredForward: (address) => ignored.push(address),
    ...changes,
  });
  return { access, floods, ignored };
}

const head = (token: string, changes: Partial<RequestHead> & { readonly more?: object } = {}): RequestHead => {
  const { more, ...rest } = changes;
  const headers = { ...(token !== '' && { authorization: `Bearer ${token}` }), ...more };
  return { method: 'GET', path: '/acp', headers, address: '9.9.9.9', ...rest } as unknown as RequestHead;
};

test('a static token is its principal, as a bearer in any case or bare, and a wrong one is nobody', async () => {
  const { access } = accessOf();
  for (const authorization of ['Bearer main-token', 'bearer   main-token', 'main-token']) {
    assert.equal((await access.withToken(head('', { more: { authorization } }))).principal.id, 'main');
  }
  assert.equal((await access.withToken(head('review-token'))).principal.id, 'review');
  assert.equal((await access.withToken(head(COMMAND))).principal.id, 'main');
  for (const token of ['', 'wrong', 'main-token, review-token', 'x Bearer main-token']) {
    assert.throws(() => access.withToken(head(token)), { code: 'UNAUTHORIZED' }, token);
  }
  assert.equal(access.isOpen(), false);
});

test('a bridge without tokens is open to any word but those that look like a credential from here', async () => {
  const { access } = accessOf({ main: '', review: '' });
  assert.equal(access.isOpen(), true);
  for (const token of ['', 'any']) assert.equal((await access.withToken(head(token))).principal.id, 'main');
  for (const token of ['tpt_dead', 'tsk_dead', 'eyJh.e30.x']) {
    assert.throws(() => access.withToken(head(token)), { code: 'UNAUTHORIZED' }, token);
  }
  const reviewed = accessOf({ main: '' });
  assert.equal(reviewed.access.isOpen(), false, 'one token is enough to close it');
  assert.throws(() => reviewed.access.withToken(head('')), { code: 'UNAUTHORIZED' });
});

test('an address that fails too often gets the time to come again, and is reported once', async () => {
  const noted: NotedFailure[] = [{ firstOverLimit: false }, { firstOverLimit: true, retryAfterSeconds: 7 }];
  const { access, floods } = accessOf({ throttle: { note: () => noted.shift() ?? { firstOverLimit: false } } });
  assert.throws(() => access.withToken(head('wrong')), { code: 'UNAUTHORIZED', details: {} });
  assert.deepEqual(floods, []);
  assert.throws(() => access.withToken(head('wrong')), { code: 'UNAUTHORIZED', details: { retryAfterSeconds: 7 } });
  assert.deepEqual(floods, ['9.9.9.9']);
  const later = accessOf({ throttle: { note: async () => ({ firstOverLimit: false, retryAfterSeconds: 3 }) } });
  await assert.rejects(Promise.resolve(later.access.withToken(head('wrong'))), { details: { retryAfterSeconds: 3 } });
});

test('people come in by their token with the bridge in its scopes, and for the teams that they are in', async () => {
  const people = { ann: ann(), reader: ann({ scopes: new Set(['completions']) }) };
  for (const identify of [
    undefined,
    async (given: RequestHead) => people[given.headers.authorization?.slice(7) as 'ann'],
  ]) {
    const { access } = accessOf({ people, ...(identify !== undefined && { identify }) });
    const enter = async (token: string, more: object = {}) => access.withToken(head(token, { more }));
    assert.equal((await enter('ann')).principal.id, 'user:ann');
    await assert.rejects(enter('reader'), { code: 'FORBIDDEN' });
    await assert.rejects(enter('nobody'), { code: 'UNAUTHORIZED' });
    const forT = await enter('ann', { 'x-team': 't' });
    assert.deepEqual([forT.principal.id, forT.principal.member?.id], ['team:t', 'user:ann']);
    await assert.rejects(enter('ann', { 'x-team': 'x'.repeat(99) }), {
      code: 'NOT_IN_TEAM',
      details: { team: 'x'.repeat(64) },
    });
    await assert.rejects(enter('ann', { 'x-team': 'u' }), { code: 'TEAM_WITHOUT_BRIDGE', details: { team: 'u' } });
    for (const token of ['main-token', COMMAND]) {
      await assert.rejects(enter(token, { 'x-team': 't' }), { code: 'NOT_IN_TEAM' }, 'a static token is in no team');
    }
    assert.equal((await enter('ann', { 'x-team': ['t', 't'] })).principal.id, 'user:ann', 'two headers name none');
  }
  const without = accessOf();
  const caller = await without.access.withToken(head('main-token', { more: { 'x-team': 't' } }));
  assert.equal(caller.principal.id, 'main', 'where there are no accounts, the header means nothing');
});

test('a token that is bound to a team works for that team alone', () => {
  const bound = ann({ team: 't' });
  assert.equal(forTeam(bound, '').id, 'team:t');
  assert.equal(forTeam(bound, 't').id, 'team:t');
  assert.throws(() => forTeam(bound, 'u'), { code: 'NOT_IN_TEAM' });
  const plain = ann();
  assert.equal(forTeam(plain, ''), plain);
  const atWork = forTeam(plain, 't');
  assert.equal(forTeam(atWork, 't'), atWork);
  assert.equal(forTeam(atWork, ''), atWork);
  assert.throws(() => forTeam(principalOf('review'), 't'), { code: 'NOT_IN_TEAM' });
});

test('pages of listed origins, the app and this machine may call /acp; others are refused before the token is looked at', async () => {
  const { access } = accessOf();
  const from = (origin: string, more: object = {}) => head('main-token', { more: { origin, ...more } });
  for (const origin of ['https://app.example', 'http://localhost:5173', 'http://127.0.0.1:1']) {
    assert.equal((await access.fromAppOrNode(from(origin))).principal.id, 'main', origin);
    assert.equal(access.crossOrigin.allows(from(origin)), true);
  }
  for (const origin of ['https://evil.example', 'null']) {
    assert.throws(() => access.fromAppOrNode(from(origin)), { code: 'ORIGIN_NOT_ALLOWED' }, origin);
  }
  assert.equal(access.crossOrigin.below, '/acp');
  const listed = accessOf({ origins: ['https://one.example'] });
  assert.equal((await listed.access.fromAppOrNode(from('https://one.example'))).principal.id, 'main');
  assert.throws(() => listed.access.fromAppOrNode(from('http://localhost:5173')), { code: 'ORIGIN_NOT_ALLOWED' });
  const own = accessOf({ origins: ['self'] });
  assert.throws(() => own.access.fromAppOrNode(from('http://localhost:5173')), { code: 'ORIGIN_NOT_ALLOWED' });
  assert.throws(() => own.access.fromAppOrNode(from('self')), { code: 'ORIGIN_NOT_ALLOWED' });
  assert.equal((await own.access.fromAppOrNode(from('https://app.example'))).principal.id, 'main');
});

test('the hop of a call counts with every credential, and headers of a node without its token are reported once', async () => {
  const { access, ignored } = accessOf({ people: { ann: ann() } });
  const marked = { 'x-app-bridge-forwarded': '1', 'x-app-forward-hop': '3' };
  for (const token of ['main-token', 'ann']) {
    const caller = await access.fromAppOrNode(head(token, { more: marked }));
    assert.deepEqual([caller.hop, caller.forwarded], [3, undefined]);
    assert.equal(access.stillAllowed(caller), true);
  }
  assert.deepEqual(ignored, ['9.9.9.9']);
  await access.fromAppOrNode(head('main-token', { more: marked, address: '8.8.8.8' }));
  await access.fromAppOrNode(head('main-token', { more: { 'x-app-forward-hop': '2' }, address: '7.7.7.7' }));
  assert.deepEqual(ignored, ['9.9.9.9', '8.8.8.8']);
  assert.equal((await access.fromAppOrNode(head('main-token'))).hop, undefined);
});

test('only what a node forwards comes in at the gateway of nodes', async () => {
  const { access } = accessOf();
  const of = (changes: object = {}) => ({
    'x-app-bridge-forwarded': '1',
    'x-app-forward-source': 'a',
    'x-app-forward-target': 'b',
    'x-app-forward-hop': '1',
    ...changes,
  });
  assert.equal((await access.fromNode(head('forward-token', { more: of() }))).principal.id, 'node:a');
  const owned = await access.fromNode(head('forward-token', { more: of({ 'x-app-forward-owner': 'review' }) }));
  assert.deepEqual([owned.principal.id, owned.forwarded?.path], ['node:a:review', '/acp']);
  for (const token of ['main-token', 'wrong', '']) {
    assert.throws(() => access.fromNode(head(token, { more: of() })), { code: 'NOT_FOUND' }, token);
  }
  assert.throws(() => access.fromNode(head('forward-token')), { code: 'NOT_FOUND' });
});

test('the workbench is for our own pages and programs, and who may only read sends no changes', async () => {
  const people = { ann: ann(), reader: ann({ role: 'readonly' }) };
  const accepted: string[] = [];
  const { access } = accessOf({
    identify(given, accepts) {
      accepted.push(accepts);
      return people[given.headers.authorization?.slice(7) as 'ann'];
    },
  });
  const more = { origin: 'https://app.example', host: 'bridge.example' };
  assert.throws(() => access.workbench(head('ann', { more })), {
    code: 'OWN_ORIGIN_REQUIRED',
    details: { origin: 'https://app.example' },
  });
  const own = { origin: 'https://bridge.example', host: 'bridge.example' };
  assert.equal((await access.workbench(head('ann', { more: own, method: 'POST' }))).principal.id, 'user:ann');
  for (const method of ['GET', 'HEAD']) {
    assert.equal((await access.workbench(head('reader', { method }))).principal.role, 'readonly');
  }
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH']) {
    assert.throws(() => access.workbench(head('reader', { method })), { code: 'FORBIDDEN' }, method);
  }
  await access.withToken(head('ann'));
  await access.fromAppOrNode(head('ann'));
  assert.equal(accepted.at(-1), 'token', 'a cookie never counts on /acp');
  assert.equal(accepted.at(-2), 'token');
  assert.equal(accepted[0], 'token or cookie');
  const later = accessOf({ identify: async () => people.reader });
  await assert.rejects(Promise.resolve(later.access.workbench(head('reader', { method: 'POST' }))), {
    code: 'FORBIDDEN',
  });
});

test('what shows the work of all is for those who see it, and what changes the machine for recent administrators', async () => {
  const admin = (changes: Partial<Principal>) => ann({ role: 'admin', seesAll: true, ...changes });
  const people = {
    ann: ann(),
    admin: admin({}),
    root: admin({ role: 'root' }),
    operator: admin({ role: 'operator' }),
    blind: admin({ seesAll: false }),
    token: admin({ credential: { ...credential(), loggedInAt: undefined } as unknown as Credential }),
    just: admin({ credential: credential({ loggedInAt: NOW - 300_000 }) }),
    old: admin({ credential: credential({ loggedInAt: NOW - 300_001 }) }),
    future: admin({ credential: credential({ loggedInAt: NOW + 300_001 }) }),
  };
  const { access } = accessOf({ people });
  for (const token of ['main-token', 'admin', 'operator']) await access.forOperators(head(token));
  for (const token of ['ann', 'review-token', 'blind']) {
    await assert.rejects(access.forOperators(head(token)) as Promise<unknown>, { code: 'FORBIDDEN' }, token);
  }
  for (const token of ['main-token', COMMAND, 'admin', 'root', 'just']) await access.freshAdmin(head(token));
  for (const [token, code] of [
    ['ann', 'FORBIDDEN'],
    ['review-token', 'FORBIDDEN'],
    ['operator', 'FORBIDDEN'],
    ['blind', 'FORBIDDEN'],
    ['token', 'LOGIN_REQUIRED'],
    ['old', 'REAUTHENTICATION_REQUIRED'],
    ['future', 'REAUTHENTICATION_REQUIRED'],
  ] as const) {
    await assert.rejects(access.freshAdmin(head(token)) as Promise<unknown>, { code }, token);
  }
});

test('a replaced token ends its callers, and one that stayed keeps them', async () => {
  const { access } = accessOf();
  const [main, review] = [await access.withToken(head('main-token')), await access.withToken(head('review-token'))];
  const hopping = await access.fromAppOrNode(head('main-token', { more: { 'x-app-forward-hop': '1' } }));
  const command = await access.withToken(head(COMMAND));
  const all = [main, review, hopping, command];
  const allowed = () => all.map((caller) => access.stillAllowed(caller));
  access.reload(settingsOf({}));
  assert.deepEqual(allowed(), [true, true, true, true]);
  access.reload(settingsOf({ review: 'another' }));
  assert.deepEqual(allowed(), [true, false, true, true]);
  access.reload(settingsOf({ main: 'another', review: 'main-token' }));
  assert.deepEqual(allowed(), [false, false, false, true], 'the token of one is not that of the other');
  assert.equal((await access.withToken(head('main-token'))).principal.id, 'review');
  access.reload(settingsOf({ main: '', review: '' }));
  assert.deepEqual(allowed(), [true, true, true, true], 'now it is open');
});

test('people stay as long as their login lives, and listeners learn of its end', async () => {
  const own = credential();
  const { access } = accessOf({ people: { ann: ann({ credential: own }) } });
  const caller = await access.fromAppOrNode(head('ann', { more: { 'x-app-forward-hop': '1' } }));
  let ended = 0;
  access.onRevoked(caller, () => {
    ended += 1;
  });
  assert.equal(access.stillAllowed(caller), true);
  own.end();
  assert.deepEqual([access.stillAllowed(caller), ended], [false, 1]);
  assert.equal(
    access.onRevoked(await access.withToken(head('main-token')), () => undefined),
    undefined,
  );
});

test('commands get their token by the control', async () => {
  const { commandTokenControl } = accessOf().access;
  assert.equal(commandTokenControl.name, 'token');
  assert.deepEqual(await commandTokenControl.handle({} as never, {} as never), { token: COMMAND });
});
