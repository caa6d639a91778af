import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createScope } from '../kit/create-scope.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { type ScriptedUpstream, startScriptedUpstream } from '../kit/scripted-upstream.ts';
import { until } from '../kit/until.ts';

const MASTER_KEY = 'Jx4rW8nTq2Lm6Zp9Kd3v';
const PASSWORD = 'copper kettle 47 over the pass';
/** Each answer of the upstream uses 1,000 tokens, at a cent for a thousand. */
const USAGE = { prompt_tokens: 500, completion_tokens: 500, total_tokens: 1000 };

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look at answers of every shape.
  readonly body: any;
}

interface World {
  readonly program: RunningProgram;
  readonly upstream: ScriptedUpstream;
  call(method: string, path: string, token?: string, body?: unknown): Promise<Answer>;
  /** Someone who registered as a stranger does, and is logged in. */
  stranger(name: string): Promise<{ id: string; token: string; key: string; keyId: string }>;
  readonly admin: { readonly id: string; readonly token: string };
  chat(key: string, model?: string): Promise<Answer>;
}

async function startWorld(scope: Scope, plans: string, accounts = 'require_verification: false'): Promise<World> {
  const upstream = await startScriptedUpstream(scope, (response) => {
    const choices = [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }];
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model: 'big', choices, usage: USAGE }),
    );
  });
  const folder = await temporaryFolder(scope);
  const file = join(folder, 'trestle.yaml');
  const text = `
accounts: { ${accounts} }
plans: ${plans}
completions:
  apis: { lab: { base_url: "${upstream.url}", api_key: "sk-lab-0d9f8e7c6b5a4" } }
  prices: { lab/big: { input: 0.00001, output: 0.00001 } }
`;
  await writeFile(file, text, { mode: 0o600 });
  const program = await startProgram(scope, {
    environment: { COMPLETIONS_MASTER_KEY: MASTER_KEY, TRESTLE_CONFIG: file },
  });
  const call: World['call'] = async (method, path, token, body) => {
    const response = await fetch(`${program.url}${path}`, {
      method,
      headers: {
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const answer = await response.text();
    return { status: response.status, body: answer === '' ? undefined : JSON.parse(answer) };
  };
  const login = async (identifier: string): Promise<string> =>
    (await call('POST', '/api/auth/login', undefined, { identifier, password: PASSWORD })).body.token;
  const setup = new URL(String(program.summary.firstAdmin));
  const first = { token: setup.hash.slice(1), name: 'Ann', email: 'ann@example.org', password: PASSWORD };
  const made = await call('POST', '/api/auth/setup', undefined, first);
  const admin = { id: made.body.user.id as string, token: await login('Ann') };
  return {
    program,
    upstream,
    call,
    admin,
    async stranger(name) {
      const person = { name, email: `${name.toLowerCase()}@example.org`, password: PASSWORD };
      const registered = await call('POST', '/api/auth/register', undefined, person);
      assert.equal(registered.status, 201, JSON.stringify(registered.body));
      const token = await login(name);
      const issued = await call('POST', '/api/auth/keys', token, { name: 'laptop' });
      assert.equal(issued.status, 201, JSON.stringify(issued.body));
      return { id: registered.body.user.id, token, key: issued.body.key, keyId: issued.body.id };
    },
    chat: (key, model = 'lab/big') =>
      call('POST', '/v1/chat/completions', key, { model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 10 }),
  };
}

const PLANS = `
  free: { models: [demo/*, lab/*], requests_per_minute: 100, keys: 2 }
  pro: { models: ["*"], budget: { usd: 0.025, period: month }, keys: 3 }
  small: { models: ["*"], requests_per_minute: 2, budget: { usd: 5, period: day } }
`;

describe('a program with plans', () => {
  const scope = createScope();
  after(() => scope.end());
  let world: World;
  before(async () => {
    world = await startWorld(scope, PLANS);
  });

  test('DA-1: a new user spends nothing until someone gives them a plan that pays', async () => {
    const { stranger, chat, upstream, call, admin } = world;
    const ben = await stranger('Ben');
    assert.equal((await chat(ben.key, 'demo/echo')).status, 200);
    const before = upstream.requests.length;
    const refused = await chat(ben.key);
    assert.deepEqual([refused.status, refused.body.error.code], [429, 'insufficient_quota']);
    assert.match(refused.body.error.message, /the plan free/);
    assert.equal(upstream.requests.length, before, 'the model API was not asked');
    const given = await call('POST', `/api/auth/admin/users/${ben.id}/plan`, admin.token, { plan: 'pro' });
    assert.equal(given.status, 200, JSON.stringify(given.body));
    assert.equal((await chat(ben.key)).status, 200, 'the plan counts from the next request on');
    const unknown = await call('POST', `/api/auth/admin/users/${ben.id}/plan`, admin.token, { plan: 'gold' });
    assert.deepEqual([unknown.status, unknown.body.error], [400, 'invalid_plan']);
  });

  test('DA-1: the budget of a plan is that of the person, whatever keys they make and remove', async () => {
    const { stranger, chat, call, admin } = world;
    const cid = await stranger('Cid');
    await call('POST', `/api/auth/admin/users/${cid.id}/plan`, admin.token, { plan: 'pro' });
    assert.equal((await chat(cid.key)).status, 200);
    assert.equal((await call('DELETE', `/api/auth/keys/${cid.keyId}`, cid.token)).status, 204);
    const other = await call('POST', '/api/auth/keys', cid.token, { name: 'other' });
    assert.equal((await chat(other.body.key)).status, 200);
    // Two cents of two and a half are spent, and a call may cost another one.
    const third = await call('POST', '/api/auth/keys', cid.token, { name: 'third' });
    assert.equal((await chat(third.body.key)).status, 200);
    assert.equal((await chat(other.body.key)).body.error.code, 'insufficient_quota');
    assert.equal((await chat(third.body.key)).body.error.code, 'insufficient_quota');
  });

  test('DA-1: the limits of a plan are shared by all keys of a person, and so is the number of keys', async () => {
    const { stranger, chat, call, admin } = world;
    const dan = await stranger('Dan');
    await call('POST', `/api/auth/admin/users/${dan.id}/plan`, admin.token, { plan: 'small' });
    const second = await call('POST', '/api/auth/keys', dan.token, { name: 'second' });
    const answers = [await chat(dan.key), await chat(second.body.key), await chat(dan.key)];
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 429],
    );
    const tooMany = await Promise.all(
      [1, 2, 3].map(() => call('POST', '/api/auth/keys', dan.token, { name: 'another' })),
    );
    assert.deepEqual([...new Set(tooMany.map(({ body }) => body.error))], ['too_many_keys']);
  });

  test('DA-1: a plan that a client claims gives nothing, one that an administrator names does', async () => {
    const { stranger, chat, call, admin } = world;
    const eve = await stranger('Eve');
    const claim = { externalId: 'order-1', planId: 'pro' };
    const claimed = await call('POST', '/api/auth/subscriptions', eve.token, claim);
    const { id } = claimed.body.subscription;
    const path = `/api/auth/admin/subscriptions/${id}/status`;
    assert.equal((await call('POST', path, admin.token, { status: 'active' })).status, 200);
    assert.equal((await chat(eve.key)).status, 429, 'the plan was named by the client only');
    assert.equal((await call('POST', path, admin.token, { status: 'active', planId: 'pro' })).status, 200);
    assert.equal((await chat(eve.key)).status, 200);
    await call('POST', path, admin.token, { status: 'cancelled' });
    assert.equal((await chat(eve.key)).status, 429, 'without the subscription the default plan is back');
    await call('POST', path, admin.token, { status: 'active', planId: 'no-such-plan' });
    assert.equal((await chat(eve.key)).status, 429, 'a plan that is not there is the default one');
  });

  test('DA-2: the keys of someone who is paused, blocked or deleted stop with the next request', async () => {
    const { stranger, chat, call, admin } = world;
    const fay = await stranger('Fay');
    const status = async () => (await chat(fay.key, 'demo/echo')).status;
    assert.equal(await status(), 200);
    await call('POST', `/api/auth/admin/users/${fay.id}/pause`, admin.token);
    assert.equal(await status(), 401);
    await call('POST', `/api/auth/admin/users/${fay.id}/resume`, admin.token);
    assert.equal(await status(), 200);
    await call('POST', '/api/auth/admin/blacklist', admin.token, { email: 'fay@example.org' });
    assert.equal(await status(), 401);
    await call('DELETE', '/api/auth/admin/blacklist/fay@example.org', admin.token);
    assert.equal(await status(), 200);
    // A key that the operator made for them lies outside of what they can see, and ends with them all the same.
    const own = await call('POST', '/keys', MASTER_KEY, { name: 'by the operator', owner: fay.id });
    assert.equal((await chat(own.body.key, 'demo/echo')).status, 200);
    await call('POST', `/api/auth/admin/users/${fay.id}/pause`, admin.token);
    assert.equal((await chat(own.body.key, 'demo/echo')).status, 401);
    await call('POST', `/api/auth/admin/users/${fay.id}/resume`, admin.token);
    await call('DELETE', `/api/auth/admin/users/${fay.id}`, admin.token);
    assert.equal(await status(), 401);
    assert.equal((await chat(own.body.key, 'demo/echo')).status, 401);
    const late = await call('POST', '/keys', MASTER_KEY, { name: 'too late', owner: fay.id });
    assert.equal((await chat(late.body.key, 'demo/echo')).status, 401, 'nobody owns this one');
    const label = await call('POST', '/keys', MASTER_KEY, { name: 'labelled', owner: 'team-a' });
    assert.equal((await chat(label.body.key, 'demo/echo')).status, 200, 'a label is not a person');
  });

  for (const path of ['/v1/chat/completions', '/v1/messages', '/v1/responses']) {
    test(`DA-2: a stream of ${path} ends with an error when its owner is paused`, async () => {
      const { stranger, call, admin, program } = world;
      const name = `Gil${path.replaceAll('/', '')}`;
      const gil = await stranger(name);
      const content = Array.from({ length: 500 }, () => 'word').join(' ');
      const body = { model: 'demo/echo?delay=50', stream: true, max_tokens: 1000 };
      const response = await fetch(`${program.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${gil.key}` },
        body: JSON.stringify({ ...body, ...(path.endsWith('responses') ? { input: content } : messages(content)) }),
      });
      assert.equal(response.status, 200);
      let text = '';
      const reading = (async () => {
        for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString('utf8');
      })();
      await until('the first words', () => text.includes('word'));
      await call('POST', `/api/auth/admin/users/${gil.id}/pause`, admin.token);
      await reading;
      assert.match(text, /invalid_api_key|authentication_error|A valid key is required/);
      assert.ok(!text.includes('[DONE]'));
      assert.ok((text.match(/word/g) ?? []).length < 400, 'most was never sent');
    });
  }
});

function messages(content: string) {
  return { messages: [{ role: 'user', content }] };
}

test('DA-1: registration by invitation lets in whom an administrator invites, with the role and plan that they gave', async (t) => {
  const { call, admin, chat } = await startWorld(t, PLANS, 'registration: invite');
  const stranger = { name: 'Ben', email: 'ben@example.org', password: PASSWORD };
  for (const path of ['register', 'register/send', 'register/verify']) {
    const refused = await call('POST', `/api/auth/${path}`, undefined, { ...stranger, code: '123456' });
    assert.deepEqual([refused.status, refused.body.error], [403, 'invitation_required'], path);
  }
  const invite = (body: unknown, token = admin.token) => call('POST', '/api/auth/admin/invitations', token, body);
  const accept = (body: unknown) => call('POST', '/api/auth/invitations/accept', undefined, body);
  const copied = await invite({ plan: 'pro' });
  assert.equal(copied.status, 201, JSON.stringify(copied.body));
  assert.match(copied.body.link, /#token=/);
  const { email: _, ...nameless } = stranger;
  const unnamed = await accept({ ...nameless, token: copied.body.token });
  assert.deepEqual([unnamed.status, unnamed.body.error], [400, 'missing_credentials']);
  assert.match(unnamed.body.message, /email: the invitation names no address/);
  const ben = await accept({ ...stranger, token: copied.body.token });
  assert.equal(ben.status, 201, JSON.stringify(ben.body));
  assert.deepEqual(
    [ben.body.user.role, ben.body.user.emailVerified],
    ['user', false],
    'a copied link verifies nothing',
  );
  assert.equal((await accept({ ...stranger, name: 'Bob', token: copied.body.token })).body.error, 'invalid_token');
  const login = await call('POST', '/api/auth/login', undefined, { identifier: 'Ben', password: PASSWORD });
  const issued = await call('POST', '/api/auth/keys', login.body.token, { name: 'laptop' });
  assert.equal((await chat(issued.body.key)).status, 200, 'the plan of the invitation pays');
  assert.equal((await invite({}, login.body.token)).status, 403);
  assert.equal((await invite({ role: 'root' })).body.error, 'invalid_role');
  assert.equal((await invite({ plan: 'gold' })).body.error, 'invalid_plan');
  assert.equal((await invite({ plam: 'pro' })).status, 400);
  const mailed = await invite({ email: 'cid@example.org', role: 'operator' });
  assert.deepEqual([mailed.body.link, mailed.body.token], [undefined, undefined], 'what is mailed is shown to nobody');
  const listed = await call('GET', '/api/auth/admin/invitations', admin.token);
  assert.deepEqual(
    listed.body.invitations.map(({ email }: { email: string }) => email),
    ['cid@example.org'],
  );
  assert.equal(
    (await call('DELETE', `/api/auth/admin/invitations/${mailed.body.invitation.id}`, admin.token)).status,
    204,
  );
  const again = await call('DELETE', `/api/auth/admin/invitations/${mailed.body.invitation.id}`, admin.token);
  assert.deepEqual([again.status, again.body.error], [404, 'invitation_not_found']);
});

test('DA-1: where registration is closed nobody comes in, by whatever way', async (t) => {
  const { call, admin } = await startWorld(t, PLANS, 'registration: closed');
  const stranger = { name: 'Ben', email: 'ben@example.org', password: PASSWORD };
  const ways: readonly [string, string | undefined, unknown][] = [
    ['register/send', undefined, { email: stranger.email }],
    ['register', undefined, stranger],
    ['admin/invitations', admin.token, {}],
    ['admin/users', admin.token, { name: 'Ben', email: stranger.email, role: 'user' }],
  ];
  for (const [path, token, body] of ways) {
    const refused = await call('POST', `/api/auth/${path}`, token, body);
    assert.deepEqual([refused.status, refused.body.error], [403, 'registration_closed'], path);
  }
});
