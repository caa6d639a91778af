import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { openSocket, postRpc, refusedUpgrade } from '../../kit/bridge/bridge-client.ts';
import { runProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';

const MAIN = 'main-token-5f1d0c1e9b7a';
const REVIEW = 'review-token-a81c2b3d4e5f';
const CALL = { jsonrpc: '2.0', id: 1, method: 'acp.capabilities', params: {} };
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

const guarded = await startProgram(
  { after },
  {
    environment: {
      BRIDGE_AUTH_TOKEN: MAIN,
      BRIDGE_REVIEW_AUTH_TOKEN: REVIEW,
      ACP_ALLOWED_ORIGINS: 'https://app.example, http://dev.example:*',
    },
  },
);
const open = await startProgram({ after });

describe('credentials', () => {
  test('B-24: with no token configured a call from this machine passes without credential', async () => {
    assert.equal((await postRpc(open.url, CALL)).json.ok, true);
    assert.equal((await fetch(`${open.url}/api/ping`)).status, 200);
  });

  test('B-24: an address that others can reach is refused without a token, and taken with --insecure', async (t) => {
    const dataDirectory = await temporaryFolder(t);
    const refused = await runProgram(['serve', 'bridge', '--listen', '0.0.0.0:0', '--data-dir', dataDirectory]);
    assert.equal(refused.code, 78);
    assert.match(refused.stderr, /BRIDGE_AUTH_TOKEN/);
    assert.match(refused.stderr, /--insecure/);
    assert.equal(refused.stderr.trim().split('\n').length, 1);
    const allowed = await startProgram(t, { args: ['--listen', '0.0.0.0:0', '--insecure'] });
    assert.equal((await fetch(`http://127.0.0.1:${allowed.port}/healthz`)).status, 200);
  });

  test('B-25: a missing, wrong or empty credential is 401 and -32001', async () => {
    const credentials = ['wrong', `${MAIN}x`, MAIN.slice(0, -1)].map(bearer);
    for (const headers of [{}, { authorization: '' }, { authorization: 'Bearer ' }, ...credentials]) {
      const { status, json } = await postRpc(guarded.url, CALL, headers);
      assert.equal(status, 401);
      assert.equal(json.error?.code, -32001);
      assert.equal(json.error?.data.code, 'UNAUTHORIZED');
    }
    assert.equal((await fetch(`${guarded.url}/api/ping`)).status, 401);
  });

  test('B-25: the credential is checked before the body is read', async () => {
    const socket = connect(guarded.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write(
      'POST /acp/rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n',
    );
    const [head] = await once(socket, 'data');
    assert.match(String(head), /^HTTP\/1\.1 401 /);
    socket.destroy();
  });

  test('B-25: an upgrade without credential is refused with 401 before it completes', async () => {
    const { status, body } = await refusedUpgrade(guarded.url);
    assert.equal(status, 401);
    assert.equal(body.error?.code, -32001);
  });

  test('B-26: "Bearer x" in any case, more than one space, and the bare token pass; a list does not', async () => {
    for (const authorization of [`Bearer ${MAIN}`, `bearer ${MAIN}`, `Bearer   ${MAIN}`, MAIN]) {
      assert.equal((await postRpc(guarded.url, CALL, { authorization })).status, 200, authorization);
    }
    for (const authorization of [`Bearer ${MAIN}, Bearer ${MAIN}`, `Basic ${MAIN}`, `Bearer${MAIN}`]) {
      assert.equal((await postRpc(guarded.url, CALL, { authorization })).status, 401, authorization);
    }
  });

  test('B-27: clearing the review token and reloading ends it alone, its live sockets too', async (t) => {
    const folder = await temporaryFolder(t);
    const config = join(folder, 'trestle.yaml');
    const write = (review: string) =>
      writeFile(config, `bridge:\n  auth_token: ${MAIN}\n  review_auth_token: "${review}"\n`, { mode: 0o600 });
    await write(REVIEW);
    const program = await startProgram(t, { args: ['--config', config] });
    const reviewSocket = await openSocket(t, program.url, { headers: bearer(REVIEW) });
    const mainSocket = await openSocket(t, program.url, { headers: bearer(MAIN) });
    assert.equal((await reviewSocket.call(CALL)).ok, true);
    await write('');
    program.child.kill('SIGHUP');
    assert.equal(await reviewSocket.closed(), 1008);
    assert.equal((await postRpc(program.url, CALL, bearer(REVIEW))).status, 401);
    assert.equal((await postRpc(program.url, CALL, bearer(MAIN))).status, 200);
    assert.equal((await mainSocket.call(CALL)).ok, true);
  });

  test('B-29: a token in the query string opens nothing and is not logged', async (t) => {
    const program = await startProgram(t, { environment: { BRIDGE_AUTH_TOKEN: MAIN }, args: ['--log-level', 'debug'] });
    for (const name of ['token', 'access_token', 'authorization']) {
      assert.equal((await fetch(`${program.url}/api/ping?${name}=${MAIN}`)).status, 401);
    }
    await program.stop();
    assert.equal(program.stderr().includes(MAIN), false);
    assert.match(program.stderr(), /api\/ping/);
  });

  test('B-46: after 20 wrong credentials a minute the 401 says when to come back, once in the log', async (t) => {
    const program = await startProgram(t, { environment: { BRIDGE_AUTH_TOKEN: MAIN } });
    let last = await postRpc(program.url, CALL, bearer('wrong'));
    assert.equal(last.headers.get('retry-after'), null);
    for (let count = 0; count < 30; count += 1) last = await postRpc(program.url, CALL, bearer('wrong'));
    assert.equal(last.status, 401);
    assert.match(last.headers.get('retry-after') ?? '', /^\d+$/);
    assert.equal((await postRpc(program.url, CALL, bearer(MAIN))).status, 200);
    await program.stop();
    assert.equal(program.stderr().split('wrong credentials').length - 1, 1);
  });
});

describe('origins', () => {
  test('B-30: no origin and listed origins pass, others and null are 403 and -32003', async () => {
    const post = (origin: string) => postRpc(guarded.url, CALL, { ...bearer(MAIN), origin });
    for (const origin of ['https://app.example', 'http://dev.example:3000']) {
      const { status, headers } = await post(origin);
      assert.equal(status, 200, origin);
      assert.equal(headers.get('access-control-allow-origin'), origin);
      assert.match(headers.get('vary') ?? '', /Origin/);
    }
    for (const origin of ['https://evil.example', 'null', 'https://app.example.evil', 'http://dev.example:x']) {
      const { status, json, headers } = await post(origin);
      assert.equal(status, 403, origin);
      assert.equal(json.error?.code, -32003);
      assert.equal(headers.get('access-control-allow-origin'), null);
    }
    const options = { origin: 'https://evil.example', headers: bearer(MAIN) };
    const { status, body } = await refusedUpgrade(guarded.url, options);
    assert.equal(status, 403);
    assert.equal(body.error?.code, -32003);
  });

  test('B-30: without a list, apps on this machine are allowed at any port', async () => {
    for (const origin of ['http://localhost:5173', 'http://127.0.0.1:80']) {
      assert.equal((await postRpc(open.url, CALL, { origin })).status, 200);
    }
    assert.equal((await postRpc(open.url, CALL, { origin: 'https://localhost:5173' })).status, 403);
  });

  test('B-32: a preflight needs no credential and reflects allowed origins only', async () => {
    const preflight = (origin: string) => fetch(`${guarded.url}/acp/rpc`, { method: 'OPTIONS', headers: { origin } });
    const allowed = await preflight('https://app.example');
    assert.equal(allowed.status, 204);
    assert.equal(allowed.headers.get('access-control-allow-origin'), 'https://app.example');
    assert.equal(allowed.headers.get('access-control-allow-methods'), 'GET, POST, OPTIONS');
    assert.equal(
      allowed.headers.get('access-control-allow-headers'),
      'Authorization, Content-Type, Accept, Last-Event-ID, Idempotency-Key',
    );
    assert.equal(allowed.headers.get('access-control-max-age'), '600');
    assert.match(allowed.headers.get('vary') ?? '', /Origin/);
    const foreign = await preflight('https://evil.example');
    assert.equal(foreign.status, 204);
    assert.equal(foreign.headers.get('access-control-allow-origin'), null);
    assert.match(foreign.headers.get('vary') ?? '', /Origin/);
  });

  test('DB-34: our own origin is allowed although the list does not name it, over HTTP and as a WebSocket', async (t) => {
    for (const origin of [guarded.url, guarded.url.replace('http:', 'https:')]) {
      const { status, headers } = await postRpc(guarded.url, CALL, { ...bearer(MAIN), origin });
      assert.equal(status, 200, origin);
      assert.equal(headers.get('access-control-allow-origin'), origin);
      const socket = await openSocket(t, guarded.url, { origin, headers: bearer(MAIN) });
      assert.equal((await socket.call(CALL)).ok, true);
    }
    const other = `http://127.0.0.1:${guarded.port + 1}`;
    assert.equal((await postRpc(guarded.url, CALL, { ...bearer(MAIN), origin: other })).status, 403);
  });

  test('DB-23: with allowed_origins: [self] no page of another port drives an open bridge', async (t) => {
    const closed = await startProgram(t, { args: ['bridge'], environment: { ACP_ALLOWED_ORIGINS: 'self' } });
    for (const origin of ['http://localhost:3000', 'http://127.0.0.1:3000', 'self', 'null', 'https://evil.example']) {
      assert.equal((await postRpc(closed.url, CALL, { origin })).status, 403, origin);
      assert.equal((await refusedUpgrade(closed.url, { origin })).status, 403, origin);
    }
    assert.equal((await postRpc(closed.url, CALL, { origin: closed.url })).status, 200);
    assert.equal((await postRpc(closed.url, CALL)).status, 200);
  });

  test('DB-23: a request that a browser makes from another site is refused also without an origin', async () => {
    for (const site of ['cross-site', 'same-site']) {
      const headers = { 'sec-fetch-site': site };
      assert.equal((await postRpc(open.url, CALL, headers)).status, 403, site);
      assert.equal((await refusedUpgrade(open.url, { headers })).status, 403, site);
    }
    for (const site of ['same-origin', 'none']) {
      assert.equal((await postRpc(open.url, CALL, { 'sec-fetch-site': site })).status, 200, site);
    }
  });

  test('DB-23: no cookie is a credential on /acp, whatever it holds', async () => {
    for (const cookie of [`xc_session=${MAIN}`, `authorization=Bearer ${MAIN}`, `token=${MAIN}; auth_token=${MAIN}`]) {
      const headers = { cookie, origin: guarded.url, 'sec-fetch-site': 'same-origin' };
      assert.equal((await postRpc(guarded.url, CALL, headers)).status, 401, cookie);
      assert.equal(
        (await refusedUpgrade(guarded.url, { origin: guarded.url, headers: { cookie } })).status,
        401,
        cookie,
      );
    }
  });

  test('DB-23: doctor warns of an open bridge that pages of other ports can use', async (t) => {
    const args = ['doctor', '--data-dir', await temporaryFolder(t), '--listen', '127.0.0.1:0'];
    const warning = /bridge\.allowed_origins .* on localhost can use the bridge/;
    assert.match((await runProgram(args)).stdout, warning);
    const closed = await runProgram(args, { environment: { ACP_ALLOWED_ORIGINS: 'self' } });
    assert.doesNotMatch(closed.stdout, warning);
  });
});
