import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UsableApi } from '../../../src/completions/apis/model-api.ts';
import type { AuthoriseUpstream } from '../../../src/completions/dialects/authorise-upstream.ts';
import type { Attempt } from '../../../src/completions/routing/attempt-call.ts';
import { createSendUpstream, type OutgoingCall } from '../../../src/completions/upstream/send-upstream.ts';
import type { UpstreamPools } from '../../../src/completions/upstream/upstream-pools.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

type Headers = Readonly<Record<string, string>>;

const TIMES = { connect: 1000, first_byte: 1000, idle: 1000, total: 1000 };
const ATTEMPT = { timeouts: TIMES, deadline: Number.POSITIVE_INFINITY, deadlineName: 'total' } as Attempt;
const LISTENER = { onHead: ignore, onData: ignore, onEnd: ignore, onFailed: ignore };
const EVENTS = 'text/event-stream, application/vnd.amazon.eventstream';

function ignore(): void {}

function apiWith(key: string): UsableApi {
  return {
    dialect: 'openai',
    baseUrl: 'http://127.0.0.1:9/v1',
    headers: { 'x-title': 'house' },
    credentials: { key },
  } as unknown as UsableApi;
}

/** Sends calls one after the other, and returns the headers that each of them went out with. */
async function sentHeaders(
  calls: readonly (Partial<OutgoingCall['encoded']> & { api: UsableApi; stream?: boolean })[],
  authorise: AuthoriseUpstream,
): Promise<readonly Headers[]> {
  const sent: Headers[] = [];
  const dispatch = (call: { readonly headers: Headers }) => sent.push(call.headers) > 0;
  const pools = { open: () => ({ dispatch }), close: async () => undefined } as unknown as UpstreamPools;
  const send = createSendUpstream({ pools, authorise, clock: createFakeClock(0) });
  for (const [index, { api, stream = false, ...own }] of calls.entries()) {
    const encoded = { path: '/chat/completions', headers: {}, body: '{}', ...own };
    const start = await send({ api, attempt: ATTEMPT, encoded, stream, idempotencyId: `call-${index}` });
    start(LISTENER);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return sent;
}

const bearer: AuthoriseUpstream = ({ headers, credentials }) => ({
  ...headers,
  authorization: `Bearer ${credentials.key}`,
});

function expected(index: number, more: Headers = {}): Headers {
  return {
    'user-agent': 'trestle',
    'x-title': 'house',
    'content-type': 'application/json',
    accept: 'application/json',
    'accept-encoding': 'identity',
    'idempotency-key': `call-${index}`,
    authorization: 'Bearer one',
    ...more,
  };
}

test('calls to one address have the same headers except for their own, whatever came before', async () => {
  const api = apiWith('one');
  const calls = [
    { api },
    { api },
    { api, stream: true },
    { api, headers: { 'openai-beta': 'x' } },
    { api, contentType: 'multipart/form-data' },
    { api },
    { api: apiWith('two') },
  ];
  assert.deepEqual(await sentHeaders(calls, bearer), [
    expected(0),
    expected(1),
    expected(2, { accept: EVENTS }),
    expected(3, { 'openai-beta': 'x' }),
    expected(4, { 'content-type': 'multipart/form-data' }),
    expected(5),
    expected(6, { authorization: 'Bearer two' }),
  ]);
});

test('a signature or an access token is made for each call', async () => {
  const api = apiWith('one');
  let made = 0;
  const signed: AuthoriseUpstream = async ({ headers }) => {
    made += 1;
    return { ...headers, authorization: `signature ${made}` };
  };
  const sent = await sentHeaders([{ api }, { api }], signed);
  assert.deepEqual(
    sent.map(({ authorization }) => authorization),
    ['signature 1', 'signature 2'],
  );
});
