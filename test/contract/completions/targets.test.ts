import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { HELLO, LAB_KEY, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import {
  answers,
  completionOf,
  diesAfter,
  eventsOf,
  refuses,
  type ScriptedUpstream,
  saysNothing,
  startScriptedUpstream,
} from '../../kit/scripted-upstream.ts';
import { until } from '../../kit/until.ts';

const api = ({ url }: ScriptedUpstream) => ({ dialect: 'openai', base_url: url, api_key: LAB_KEY });
const textOf = async (response: Response) => {
  const body = (await response.json()) as { choices: { message: { content: string } }[] };
  return body.choices[0]?.message.content;
};
const codeOf = async (response: Response) => ((await response.json()) as { error: { code: string } }).error.code;

test('targets of one priority share calls by weight; others are asked when those fail', async (t) => {
  const [a, b, c] = await Promise.all(
    ['a', 'b', 'c'].map((name) => startScriptedUpstream(t, answers(completionOf(name)))),
  );
  assert.ok(a && b && c);
  const { post } = await startCompletions(t, {
    settings: {
      apis: { a: api(a), b: api(b), c: api(c) },
      models: [
        {
          name: 'mix',
          retries: 0,
          targets: [
            { model: 'a/m', weight: 3 },
            { model: 'b/m', weight: 1 },
            { model: 'c/m', priority: 2 },
          ],
        },
      ],
    },
  });
  const call = () => post('/v1/chat/completions', { ...HELLO, model: 'mix' });
  for (let count = 0; count < 8; count += 1) await (await call()).text();
  assert.deepEqual(
    [a, b, c].map(({ requests }) => requests.length),
    [6, 2, 0],
  );
  assert.equal(a.requests[0]?.json.model, 'm');
  a.script(refuses(500));
  b.script(refuses(503));
  const last = await call();
  assert.equal(last.headers.get('x-model-api'), 'c');
  assert.equal(last.headers.get('x-attempts'), '3');
  assert.equal(await textOf(last), 'c');
});

test('a limit of a target sends calls on to the next, and is a 503 with Retry-After when there is none', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { post } = await startCompletions(t, {
    settings: {
      apis: { lab: api(upstream) },
      models: [
        { name: 'limited', targets: [{ model: 'lab/one', requests_per_minute: 2 }] },
        { name: 'tokens', targets: [{ model: 'lab/two', tokens_per_minute: 1100 }] },
      ],
    },
  });
  const statuses = async (model: string, count: number) => {
    const all: Response[] = [];
    for (let each = 0; each < count; each += 1) all.push(await post('/v1/chat/completions', { ...HELLO, model }));
    return all;
  };
  const limited = await statuses('limited', 3);
  assert.deepEqual(
    limited.map(({ status }) => status),
    [200, 200, 503],
  );
  assert.ok(Number(limited[2]?.headers.get('retry-after')) > 0);
  // The expected tokens are reserved, and given back when fewer were used.
  const byTokens = await statuses('tokens', 3);
  assert.deepEqual(
    byTokens.map(({ status }) => status),
    [200, 200, 200],
  );
});

test('a prompt that is too long goes to context_fallbacks, and only then', async (t) => {
  const tooLong = refuses(400, "This model's maximum context length is 10 tokens.");
  const small = await startScriptedUpstream(t, tooLong);
  const large = await startScriptedUpstream(t, answers(completionOf('large')));
  const { post } = await startCompletions(t, {
    settings: {
      apis: { small: api(small), large: api(large) },
      models: [
        { name: 'm', targets: [{ model: 'small/x' }], context_fallbacks: ['large/x'], fallbacks: ['demo/echo'] },
        { name: 'n', targets: [{ model: 'small/x' }], fallbacks: ['demo/echo'] },
      ],
    },
  });
  const helped = await post('/v1/chat/completions', { ...HELLO, model: 'm' });
  assert.equal(await textOf(helped), 'large');
  assert.equal(helped.headers.get('x-attempts'), '2');
  const not = await post('/v1/chat/completions', { ...HELLO, model: 'n' });
  assert.equal(not.status, 400);
  assert.equal(await codeOf(not), 'context_length_exceeded');
  small.script(refuses(400, 'temperature is wrong'));
  assert.equal((await post('/v1/chat/completions', { ...HELLO, model: 'm' })).status, 400);
});

test('a fallback that the key may not use is skipped', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(500));
  const { url, post } = await startCompletions(t, {
    settings: {
      master_key: 'master-key-9d8f7a6b5c4e',
      apis: { lab: api(upstream) },
      models: [{ name: 'm', targets: [{ model: 'lab/x' }], retries: 0, fallbacks: ['demo/echo'] }],
    },
  });
  const master = { authorization: 'Bearer master-key-9d8f7a6b5c4e' };
  const issue = async (models: string[]) => {
    const body = JSON.stringify({ name: 'k', models });
    const headers = { ...master, 'content-type': 'application/json' };
    return ((await (await fetch(`${url}/keys`, { method: 'POST', headers, body })).json()) as { key: string }).key;
  };
  const call = async (key: string, model: string) =>
    post('/v1/chat/completions', { ...HELLO, model }, { headers: { authorization: `Bearer ${key}` } });
  const narrow = await issue(['m']);
  assert.equal((await call(narrow, 'm')).status, 502);
  assert.equal((await call(await issue(['m', 'demo/*']), 'm')).headers.get('x-model-api'), 'demo');
  const refused = await call(narrow, 'demo/echo');
  assert.equal(refused.status, 403);
  assert.equal(await codeOf(refused), 'model_not_allowed');
});

test('an alias asks the cheapest target first, or the one with the fewest calls under way', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const price = (input: number) => ({ input, output: 0.00001 });
  const targets = ['unknown', 'dear', 'cheap'].map((model) => ({ model: `lab/${model}`, weight: 1 }));
  const { post } = await startCompletions(t, {
    settings: {
      apis: { lab: api(upstream) },
      models: [
        { name: 'saving', strategy: 'cheapest', targets, retries: 0 },
        { name: 'even', strategy: 'least_busy', targets: [{ model: 'lab/a', weight: 9 }, { model: 'lab/b' }] },
      ],
      prices: { 'lab/dear': price(0.00002), 'lab/cheap': price(0.00001) },
    },
  });
  const ask = async (model: string) =>
    (await post('/v1/chat/completions', { ...HELLO, model })).headers.get('x-model-id');
  assert.deepEqual([await ask('saving'), await ask('saving'), await ask('saving')], ['cheap', 'cheap', 'cheap']);
  const ok = answers(completionOf('ok'));
  upstream.script(refuses(500), ok);
  assert.equal(await ask('saving'), 'dear');
  upstream.script(refuses(500), refuses(500), ok);
  assert.equal(await ask('saving'), 'unknown');

  const seen = upstream.requests.length;
  upstream.script(saysNothing, ok);
  const leaving = new AbortController();
  const waiting = post('/v1/chat/completions', { ...HELLO, model: 'even' }, { signal: leaving.signal }).catch(() => 0);
  await until('the first call to be at the upstream', () => upstream.requests.length === seen + 1);
  // By weight alone the first target would get nine of ten calls.
  assert.deepEqual([await ask('even'), await ask('even'), await ask('even')], ['b', 'b', 'b']);
  leaving.abort();
  await waiting;
});

const MASTER = 'master-key-9d8f7a6b5c4e';

/** Two callers, each with a key of its own. */
async function startWithCallers(t: TestContext, settings: object, clock: Clock = systemClock) {
  const running = await startCompletions(t, { clock, settings: { master_key: MASTER, ...settings } });
  const issue = async () => {
    const headers = { authorization: `Bearer ${MASTER}`, 'content-type': 'application/json' };
    const response = await fetch(`${running.url}/keys`, { method: 'POST', headers, body: '{"name":"k"}' });
    return ((await response.json()) as { key: string }).key;
  };
  const callers = [await issue(), await issue()] as const;
  const call = (caller: 0 | 1, model = 'm', body: object = {}, headers: Record<string, string> = {}) =>
    running.post(
      '/v1/chat/completions',
      { ...HELLO, model, ...body },
      { headers: { authorization: `Bearer ${callers[caller]}`, ...headers } },
    );
  const state = (target = 'lab/x') => running.completions.targets().find((one) => one.target === target)?.state;
  return { ...running, call, state };
}

const TWO_TARGETS = [{ model: 'lab/x' }, { model: 'lab/y', priority: 2 }];

test('P-14: a target that fails for two callers is out for 30 s; one probe brings it back', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(500));
  const models = [{ name: 'm', targets: TWO_TARGETS, retries: 0 }];
  const clock = createFakeClock();
  const { call, state, log } = await startWithCallers(t, { apis: { lab: api(upstream) }, models }, clock);
  const asked = (model: string) => upstream.requests.filter(({ json }) => json.model === model).length;
  for (let count = 0; count < 5; count += 1) await call(0);
  for (let count = 0; count < 4; count += 1) await call(1);
  await clock.advance(31_000);
  assert.equal((await call(1)).status, 502);
  assert.equal(state(), 'closed', 'the first nine are too long ago');
  for (let count = 0; count < 9; count += 1) await call(count % 2 === 0 ? 0 : 1);
  assert.equal(state(), 'open');
  assert.equal(state('lab/y'), 'open');
  const before = upstream.requests.length;
  const out = await call(0);
  assert.equal(out.status, 503);
  assert.equal(out.headers.get('retry-after'), '30');
  assert.equal(await codeOf(out), 'no_target_available');
  assert.equal(upstream.requests.length, before, 'it was not asked');

  await clock.advance(30_000);
  assert.equal((await call(0)).status, 502, 'the probe fails');
  assert.equal((await call(1)).status, 503);
  await clock.advance(30_000);
  let release: () => void = () => undefined;
  upstream.script((response, request) => {
    if (request.json.model === 'x') release = () => answers(completionOf('back'))(response, request);
    else refuses(500)(response, request);
  });
  const tried = asked('x');
  const probe = call(0);
  await until('the circuit to probe', () => state() === 'probing' && asked('x') > tried);
  await call(1);
  assert.equal(asked('x'), tried + 1, 'only one call probes');
  release();
  assert.equal((await probe).status, 200);
  assert.equal(state(), 'closed');
  assert.match(log(), /a target is out/);
  assert.match(log(), /a target is back/);
});

test('DC-5: failures of one caller do not take a target out for the others', async (t) => {
  const upstream = await startScriptedUpstream(t, (response, request) =>
    (request.text.includes('poison') ? refuses(500) : answers(completionOf('fine')))(response, request),
  );
  const { call, state } = await startWithCallers(t, { apis: { lab: api(upstream) } });
  const poison = { messages: [{ role: 'user', content: 'poison' }] };
  for (let count = 0; count < 20; count += 1) {
    assert.equal((await call(0, 'lab/x', poison)).status, 502);
    assert.equal((await call(1, 'lab/x')).status, 200);
  }
  assert.equal(state(), 'closed');
});

test('DC-5: a sole target that is out only loses its retries', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(500));
  const { call, state } = await startWithCallers(t, { apis: { lab: api(upstream) } });
  for (let count = 0; count < 10; count += 1) assert.equal((await call(count % 2 === 0 ? 0 : 1, 'lab/x')).status, 502);
  assert.equal(state(), 'open');
  const failed = await call(0, 'lab/x');
  assert.equal(failed.status, 502);
  assert.equal(failed.headers.get('x-attempts'), '1');
  upstream.script(answers(completionOf('fine')));
  assert.equal((await call(1, 'lab/x')).status, 200);
});

test('DC-5: a call whose own attempts take the target out says why they failed', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(500, 'disk full'));
  const models = [{ name: 'm', targets: [{ model: 'lab/x' }], retries: 10, fallbacks: ['none/here'] }];
  const { call, state } = await startWithCallers(t, { apis: { lab: api(upstream) }, models });
  const [first, second] = [await call(0), await call(1)];
  assert.equal(state(), 'open');
  for (const response of [first, second]) {
    assert.equal(response.status, 502);
    assert.match(await response.text(), /disk full/);
  }
});

test('DC-5: faults of requests and answers that the model spoilt do not count against a target', async (t) => {
  const malformed = { candidates: [{ content: { parts: [] }, finishReason: 'MALFORMED_FUNCTION_CALL' }] };
  const google = await startScriptedUpstream(t, answers(malformed));
  const lab = await startScriptedUpstream(t, refuses(400, 'bad'));
  const { call, completions } = await startWithCallers(t, {
    apis: {
      google: { base_url: `${google.origin}/v1beta`, api_key: LAB_KEY },
      lab: api(lab),
    },
  });
  for (let count = 0; count < 6; count += 1) {
    for (const caller of [0, 1] as const) {
      assert.equal((await call(caller, 'google/gemini-2.5-flash')).status, 502);
      assert.equal((await call(caller, 'lab/x')).status, 400);
    }
  }
  assert.deepEqual(
    completions.targets().map(({ state }) => state),
    ['closed', 'closed'],
  );
});

test('P-14: streams that break in the middle count, refused requests do not', async (t) => {
  const upstream = await startScriptedUpstream(t, refuses(400));
  const { call, completions } = await startWithCallers(t, { apis: { lab: api(upstream) } });
  for (let count = 0; count < 12; count += 1) await (await call(count % 2 === 0 ? 0 : 1, 'lab/x')).text();
  assert.equal(completions.targets()[0]?.state, 'closed');
  upstream.script(diesAfter(eventsOf(['x']).slice(0, 2)));
  for (let count = 0; count < 10; count += 1) {
    await readStream(await call(count % 2 === 0 ? 0 : 1, 'lab/x', { stream: true }));
  }
  assert.equal(completions.targets()[0]?.state, 'open');
  assert.equal(completions.targets()[0]?.inFlight, 0);
});

test('P-30: base URLs come from the settings alone, and never lead to where a cloud keeps credentials', async (t) => {
  const { post } = await startCompletions(t, {
    settings: {
      apis: {
        cloud: { dialect: 'openai', base_url: 'http://169.254.169.254/latest', api_key: LAB_KEY },
        hidden: { dialect: 'openai', base_url: 'http://[::ffff:a9fe:a9fe]/v1', api_key: LAB_KEY },
        named: { dialect: 'openai', base_url: 'http://metadata.google.internal/v1', api_key: LAB_KEY },
      },
    },
  });
  for (const name of ['cloud', 'hidden', 'named']) {
    const response = await post('/v1/chat/completions', { ...HELLO, model: `${name}/x` });
    assert.equal(response.status, 502);
    assert.match(await response.text(), /cloud hands out credentials/);
  }
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const given = { ...HELLO, model: 'demo/echo', base_url: upstream.url, api_base: upstream.url };
  assert.equal((await post('/v1/chat/completions', given)).status, 200);
  assert.equal(upstream.requests.length, 0);
});

test('new keys of an API count after a reload', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { completions, post } = await startCompletions(t, { settings: { apis: { lab: api(upstream) } } });
  const { settingsOf } = await import('../../kit/completions/start-completions.ts');
  completions.reload(settingsOf({ apis: { lab: { ...api(upstream), api_key: 'another-key-77aa' } } }));
  await post('/v1/chat/completions', HELLO);
  assert.equal(upstream.requests[0]?.headers.authorization, 'Bearer another-key-77aa');
});
