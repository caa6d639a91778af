import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import { after, test } from 'node:test';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { createIssuedPeople } from '../../src/accounts/issuer/issued-people.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import type { RequestHead } from '../../src/platform/http/surface.ts';
import { issuerFindings } from '../../src/system/doctor/diagnose.ts';
import { accountsSettingsOf } from '../../src/system/settings.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';
import type { Scope } from '../kit/running-program.ts';
import {
  BRIDGE_TOKEN,
  bearer,
  ELSEWHERE,
  type Headers,
  MASTER_KEY,
  startElsewhere,
  startPeople,
} from '../kit/start-people.ts';

const { main: MAIN, master: MASTER } = ELSEWHERE;

const people = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  { plans: { gold: {}, slow: {} } },
);
const elsewhere = await startElsewhere({ after }, { accounts: { issuer: `${people.url}/` } });
const { send, rpc, chat } = elsewhere;

async function signedFor(holder: { readonly token: string }, body: object = {}): Promise<Headers> {
  const { body: answer } = await people.send('POST', '/api/auth/token/jwt', bearer(holder.token), body);
  return bearer(answer.access_token);
}
const start = (sessionId: string) => ({
  ...{ sessionId, taskPrompt: 'Say hello', routing: { explicitProviderId: 'builtin' } },
});
const sessionsOf = async (headers: Headers) => {
  const { body } = await send('GET', '/api/bridge/sessions', headers);
  return (body.sessions as readonly { readonly sessionId: string }[]).map(({ sessionId }) => sessionId).sort();
};

test('people of an issuer work elsewhere as themselves, and see only what is theirs', async () => {
  const [ann, bob] = [await people.newPerson('user', 'worker'), await people.newPerson('user', 'worker')];
  const [anns, bobs] = [await signedFor(ann), await signedFor(bob)];
  const started = await rpc('session.start', anns, start('of-ann'));
  assert.equal(started.body.result?.status, 'completed', JSON.stringify(started.body));
  assert.equal((await rpc('session.start', bobs, start('of-bob'))).status, 200);
  assert.deepEqual(await sessionsOf(anns), ['of-ann']);
  assert.deepEqual(await sessionsOf(bobs), ['of-bob']);
  const root = await signedFor(people.root);
  const operator = await signedFor(await people.newPerson('operator'));
  for (const [headers, seen] of [
    [MAIN, ['of-ann', 'of-bob']],
    [root, ['of-ann', 'of-bob']],
    // The token does not say whether an operator may see the work of others.
    [operator, []],
    // Without the scope admin, an administrator is anyone.
    [await signedFor(people.root, { scopes: ['bridge'] }), []],
  ] as const) {
    assert.deepEqual(await sessionsOf(headers), seen);
  }
  assert.equal((await chat(anns)).status, 200);
  const usage = await send('GET', '/usage?group_by=owner', MASTER);
  assert.ok(JSON.stringify(usage.body).includes(`user:${ann.id}`), JSON.stringify(usage.body));
  const own = JSON.stringify((await send('GET', '/usage?group_by=owner', bobs)).body);
  assert.ok(!own.includes(ann.id), own);

  const personal = await people.newToken(ann, ['bridge', 'completions']);
  for (const token of [ann.token, personal.token]) {
    assert.deepEqual(
      [(await chat(bearer(token))).status, (await rpc('acp.capabilities', bearer(token))).status],
      [401, 401],
    );
  }
});

test('the plan is named by the token and defined here; one that is not known here is the default plan', async () => {
  const gold = await people.newPerson('user', 'gold');
  const golds = await signedFor(gold);
  assert.equal((await chat(golds)).status, 200);
  assert.equal((await chat(golds, 'lab/big')).status, 403, 'the built-in plan includes the demo model alone');
  const refused = await rpc('session.start', await signedFor(await people.newPerson('user', 'poor')), start('none'));
  assert.deepEqual([refused.status, refused.body.error.data.code], [403, 'FORBIDDEN']);

  const slow = await people.newPerson('user', 'slow');
  const statuses = [(await chat(await signedFor(slow))).status, (await chat(await signedFor(slow))).status];
  assert.deepEqual(statuses, [200, 429], 'one request a minute here, with all tokens together');
});

test('where nobody could charge people, the built-in agent works for the operator alone', async (t) => {
  const issued = { accounts: { issuer: people.url } };
  const builtin = { model: 'lab/model', base_url: 'http://127.0.0.1:9/v1', api_key: 'key-of-the-operator-3c2b1a' };
  const anns = await signedFor(await people.newPerson('user', 'worker'));
  for (const [more, services, reason] of [
    [{}, ['bridge'], /the completions service, which charges them, does not run/],
    [
      { agents: { builtin } },
      ['bridge', 'completions'],
      /completions\.prices has no price for \\"agents\.builtin\/lab\/model\\"/,
    ],
  ] as const) {
    const alone = await startElsewhere(t, { ...issued, ...more }, services);
    const { body } = await alone.rpc('session.start', anns, start('of-ann'));
    const told = JSON.stringify(body);
    assert.match(told, reason);
    assert.match(told, /PERSON_NOT_CHARGED/);
    const operators = JSON.stringify((await alone.rpc('session.start', MAIN, start('of-main'))).body);
    assert.doesNotMatch(operators, /PERSON_NOT_CHARGED/);
  }
});

test('a team counts elsewhere for those who are in it', async () => {
  const member = await people.newPerson('user', 'worker');
  const team = await people.newTeam({}, member);
  const members = await signedFor(member);
  assert.equal((await chat({ ...members, 'x-team': team })).status, 200);
  const stranger = await signedFor(await people.newPerson('user', 'worker'));
  assert.equal((await chat({ ...stranger, 'x-team': team })).status, 403);

  const slow = await people.newTeam({ plan: 'slow' }, member);
  const unknown = await people.newTeam({ plan: 'gold' }, member);
  const inTeams = await signedFor(member);
  const statuses = [
    (await chat({ ...inTeams, 'x-team': slow })).status,
    (await chat({ ...inTeams, 'x-team': slow })).status,
  ];
  assert.deepEqual(statuses, [200, 429], 'the plan of the team allows one request a minute here');
  assert.equal((await chat(inTeams)).status, 200, 'the person alone is not limited by it');
  const refused = await chat({ ...inTeams, 'x-team': unknown }, 'lab/big');
  assert.equal(refused.status, 403, 'a plan of a team that is not known here is the default plan');
});

test('accounts and an issuer elsewhere do not run together', async (t) => {
  const settings = { accounts: { issuer: people.url } };
  await assert.rejects(
    startElsewhere(t, settings, ['bridge', 'accounts']),
    (error) => error instanceof AppError && error.code === 'SECOND_ISSUER' && error.details.issuer === people.url,
  );
  const { problems } = resolveTrestle('accounts: { issuer: "http://accounts.example" }');
  assert.match(JSON.stringify(problems), /accounts\.issuer.*use https/);
});

/** An issuer that a test controls. */
async function startIssuer(scope: Scope) {
  let respond: ((response: ServerResponse) => void) | undefined;
  const reads: string[] = [];
  const published: object[] = [];
  const server = await listenOnLoopback(
    createServer((request, response) => {
      reads.push(request.url ?? '');
      if (respond !== undefined) return respond(response);
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ keys: published }));
    }),
  );
  scope.after(() => server.close());
  async function newKey(kid: string) {
    const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
    published.push({ ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' });
    return { kid, privateKey };
  }
  return {
    url: server.url,
    reads,
    newKey,
    answerWith: (answer: typeof respond) => {
      respond = answer;
    },
  };
}

type Key = { readonly kid: string; readonly privateKey: Awaited<ReturnType<typeof generateKeyPair>>['privateKey'] };

interface Said {
  readonly claims?: object;
  readonly header?: object;
  readonly now: number;
  readonly lifetimeS?: number;
}

function sign(key: Key, issuer: string, { claims = {}, header = {}, now, lifetimeS = 300 }: Said): Promise<string> {
  const at = Math.floor(now / 1000);
  const said = {
    sub: 'user:usr_1',
    aud: 'trestle',
    sid: 'ses_1',
    scope: 'bridge completions',
    role: 'user',
    teams: [],
    team_limits: [],
    team: '',
    plan: '',
  };
  return new SignJWT({ iss: issuer, iat: at, exp: at + lifetimeS, ...said, ...claims })
    .setProtectedHeader({ alg: 'ES256', kid: key.kid, typ: 'at+jwt', ...header })
    .sign(key.privateKey);
}

const headOf = (token: string) => ({ headers: { authorization: `Bearer ${token}` } }) as unknown as RequestHead;

function peopleOf(issuer: string, settings = '{}') {
  const clock = createFakeClock();
  const failures: unknown[] = [];
  const plans = (text: string) => accountsSettingsOf(resolveTrestle(text).settings);
  const issued = createIssuedPeople({
    issuer,
    settings: plans(settings),
    clock,
    onFailure: (error) => failures.push(error),
  });
  const read = async (token: string) => issued.identify(headOf(token), 'token');
  return { clock, failures, issued, read, plans };
}

test('only fresh tokens of the issuer, for us, with its algorithm and about a person, count', async (t) => {
  const issuer = await startIssuer(t);
  const key = await issuer.newKey('k1');
  const other = await (await startIssuer(t)).newKey('k1');
  const { clock, read } = peopleOf(issuer.url);
  const now = clock.now();
  const tokens: Readonly<Record<string, Promise<string>>> = {
    good: sign(key, issuer.url, { now }),
    'a key of somebody else': sign(other, issuer.url, { now }),
    'another issuer': sign(key, 'https://other.example', { now }),
    'another audience': sign(key, issuer.url, { now, claims: { aud: 'someone' } }),
    'another type': sign(key, issuer.url, { now, header: { typ: 'JWT' } }),
    'the operator': sign(key, issuer.url, { now, claims: { sub: 'main' } }),
    'a role that does not exist': sign(key, issuer.url, { now, claims: { role: 'god' } }),
    'a team of others': sign(key, issuer.url, { now, claims: { team: 'team_1' } }),
    'no plan': sign(key, issuer.url, { now, claims: { plan: undefined } }),
    'an hour': sign(key, issuer.url, { now, lifetimeS: 3600 }),
    expired: sign(key, issuer.url, { now: now - 311_000 }),
    'expired, within the tolerance': sign(key, issuer.url, { now: now - 309_000 }),
  };
  const accepted: string[] = [];
  for (const [name, token] of Object.entries(tokens)) if ((await read(await token)) !== undefined) accepted.push(name);
  assert.deepEqual(accepted, ['good', 'expired, within the tolerance']);
  for (const word of ['', 'tpt_x', 'eyJhbGciOiJub25lIn0.e30.']) assert.equal(await read(word), undefined);
  assert.deepEqual(issuer.reads, ['/.well-known/jwks.json'], 'the keys are read once');
});

test('a token ends by time, and a socket with it', async (t) => {
  const issuer = await startIssuer(t);
  const key = await issuer.newKey('k1');
  const { clock, read } = peopleOf(issuer.url);
  const token = await sign(key, issuer.url, { now: clock.now() });
  const principal = await read(token);
  let ended = 0;
  principal?.credential?.onEnd(() => {
    ended += 1;
  });
  const forget = principal?.credential?.onEnd(() => assert.fail('it was forgotten'));
  forget?.();
  await clock.advance(309_000);
  assert.equal(await read(token), principal, 'kept, not checked again');
  assert.deepEqual([ended, principal?.credential?.isLive()], [0, true]);
  await clock.advance(1000);
  assert.deepEqual([ended, principal?.credential?.isLive(), await read(token)], [1, false, undefined]);
});

test('new keys are found, and keys that do not exist are not looked for all the time', async (t) => {
  const issuer = await startIssuer(t);
  const [first, unknown] = [await issuer.newKey('k1'), await (await startIssuer(t)).newKey('k9')];
  const { clock, read } = peopleOf(issuer.url);
  const tokenOf = (key: Key) => sign(key, issuer.url, { now: clock.now() });
  const isRead = async (key: Key) => (await read(await tokenOf(key))) !== undefined;
  assert.equal(await isRead(first), true);
  for (let times = 0; times < 5; times += 1) assert.equal(await isRead(unknown), false);
  assert.equal(issuer.reads.length, 1);
  await clock.advance(30_000);
  const second = await issuer.newKey('k2');
  assert.deepEqual([await isRead(second), await isRead(unknown)], [true, false]);
  assert.equal(issuer.reads.length, 2);
  await clock.advance(10 * 60_000);
  assert.equal(await isRead(first), true);
  assert.equal(issuer.reads.length, 3, 'keys are read again after ten minutes');
});

test('an issuer that cannot be asked is 503, is not asked all the time, and is asked again', async (t) => {
  const issuer = await startIssuer(t);
  const key = await issuer.newKey('k1');
  const { clock, read, failures } = peopleOf(issuer.url);
  const token = await sign(key, issuer.url, { now: clock.now() });
  const unavailable = (error: unknown) => error instanceof AppError && error.code === 'ISSUER_UNAVAILABLE';
  const answers: Readonly<Record<string, (response: ServerResponse) => void>> = {
    'an error': (response) => response.writeHead(500).end(),
    'a redirect': (response) => response.writeHead(302, { location: 'https://example.org' }).end(),
    'no JSON': (response) => response.end('<html>'),
    'no keys': (response) => response.end('{}'),
    'two megabytes': (response) => response.end(JSON.stringify({ keys: [], more: 'x'.repeat(2_000_000) })),
    'a cut connection': (response) => response.destroy(),
  };
  for (const [name, answer] of Object.entries(answers)) {
    issuer.answerWith(answer);
    const before = issuer.reads.length;
    await assert.rejects(read(token), unavailable, name);
    await assert.rejects(read(token), unavailable, name);
    assert.equal(issuer.reads.length - before, 1, `${name}: asked once in five seconds`);
    await clock.advance(5000);
  }
  assert.equal(failures.length, Object.keys(answers).length);
  issuer.answerWith(undefined);
  assert.equal((await read(token))?.id, 'user:usr_1');
});

test('over HTTP the caller learns that the issuer cannot be reached; other credentials work', async (t) => {
  const gone = await startIssuer(t);
  const key = await gone.newKey('k1');
  gone.answerWith((response) => response.destroy());
  const service = await startElsewhere(t, { accounts: { issuer: gone.url } });
  const headers = bearer(await sign(key, gone.url, { now: Date.now() }));
  for (const { status, body, response } of [
    await service.chat(headers),
    await service.rpc('acp.capabilities', headers),
  ]) {
    assert.deepEqual([status, response.headers.get('retry-after')], [503, '5'], JSON.stringify(body));
    assert.match(body.error.message, new RegExp(`because its issuer ${gone.url} cannot be reached`));
  }
  assert.equal((await service.rpc('acp.capabilities', MAIN)).status, 200);
  assert.equal((await service.chat(MASTER)).status, 200);

  const { settings } = resolveTrestle(`accounts: { issuer: "${gone.url}" }`);
  const finding = async () =>
    (await issuerFindings(settings, systemClock)).map(({ state, text }) => `${state} ${text}`);
  assert.match((await finding())[0] ?? '', /^broken the keys of .* cannot be read \(.+\): calls .* refused with 503$/);
  gone.answerWith(undefined);
  assert.deepEqual(await finding(), [`ok ${gone.url}, 1 key`]);
});

test('what is known of someone comes from their newest token, and from the plans of this machine', async (t) => {
  const issuer = await startIssuer(t);
  const key = await issuer.newKey('k1');
  const pro = 'plans: { pro: { bridge: true, jobs: 5 } }\nbridge: { trust_users: true }';
  const { clock, read, issued, plans } = peopleOf(issuer.url, pro);
  const { ownerOf, watch } = issued.owners;
  const changes: string[] = [];
  watch(({ id, plan }) => void changes.push(`${id} ${plan}`));
  const ownerNow = async () => {
    const owner = await ownerOf('user:usr_1');
    return [owner?.plan, owner?.bridge, owner?.buckets[0]?.limits.jobs];
  };
  // After a restart work that was accepted before goes on, within the default plan.
  assert.deepEqual(await ownerNow(), ['free', true, 10]);
  assert.equal(ownerOf('a label'), undefined);
  const older = await sign(key, issuer.url, { now: clock.now(), claims: { plan: 'free' } });
  await clock.advance(1000);
  const newer = await sign(key, issuer.url, {
    now: clock.now(),
    claims: { plan: 'pro', teams: ['team_1'], team_limits: [null] },
  });
  const principal = await read(newer);
  assert.deepEqual([principal?.scopes.has('bridge'), principal?.teams], [true, ['team_1']]);
  await read(older);
  assert.deepEqual(await ownerNow(), ['pro', true, 5]);
  issued.reload(plans('plans: { pro: { jobs: 7 } }'));
  assert.deepEqual(await ownerNow(), ['pro', false, 7]);
  assert.equal((await read(newer))?.scopes.has('bridge'), false, 'a plan without the bridge counts immediately');
  assert.deepEqual(changes, ['user:usr_1 pro', 'user:usr_1 pro']);
});
