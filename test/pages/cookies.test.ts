import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { freePort } from '../kit/free-port.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';
import { startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { openPage } from './open-page.ts';

const PASSWORD = 'copper kettle 47 over the pass';

interface Exchange {
  path?: string;
  cookie?: string;
  status?: number;
}

/** What went over the wire, also where the browser keeps the response from the page. */
async function watchNetwork(page: Page) {
  const devtools = await page.context().newCDPSession(page);
  const exchanges = new Map<string, Exchange>();
  const note = (id: string, facts: Exchange) => void exchanges.set(id, { ...exchanges.get(id), ...facts });
  devtools.on('Network.requestWillBeSent', (event) =>
    note(event.requestId, { path: new URL(event.request.url).pathname }),
  );
  devtools.on('Network.requestWillBeSentExtraInfo', (event) =>
    note(event.requestId, { cookie: event.headers.Cookie ?? event.headers.cookie ?? '' }),
  );
  devtools.on('Network.responseReceivedExtraInfo', (event) => note(event.requestId, { status: event.statusCode }));
  await devtools.send('Network.enable');
  /** Sends a request, and tells with which status it was answered and whether the cookie went along. */
  return async (path: string, act: () => Promise<unknown>): Promise<string> => {
    exchanges.clear();
    await act();
    const { status, cookie = '' } = await until(`the response of ${path}`, () =>
      [...exchanges.values()].find((one) => one.path === path && one.status !== undefined && one.cookie !== undefined),
    );
    return `${status}${cookie.includes('xc_session=') ? ' with the cookie' : ''}`;
  };
}

const send = (url: string, method: string) =>
  `fetch(${JSON.stringify(url)}, { method: '${method}', credentials: 'include', mode: 'no-cors'${
    method === 'POST' ? ", body: '{}', headers: { 'content-type': 'text/plain' }" : ''
  } }).then(() => null, () => null)`;

const socketFrom = (url: string) =>
  `new Promise((done) => { const socket = new WebSocket(${JSON.stringify(url)});
    socket.onopen = () => done('open'); socket.onerror = () => done('refused'); })`;

test('in a real browser the cookie counts for our own pages, and for no other port, host, frame or form', async (t) => {
  const port = await freePort();
  const program = await startProgram(t, {
    args: ['--listen', `127.0.0.1:${port}`],
    environment: {
      BRIDGE_AUTH_TOKEN: 'bridge-token-9e8d7c6b5a4f3',
      COMPLETIONS_MASTER_KEY: 'master-key-5d4c3b2a1f0e9',
    },
  });
  const own = `http://localhost:${port}`;
  const server = await listenOnLoopback(
    createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end('<!doctype html><title>elsewhere</title><body></body>');
    }),
  );
  t.after(() => server.close());
  const { url: other } = server;
  const elsewhere = other.replace('127.0.0.1', 'localhost');
  const link = new URL(String(program.summary.firstAdmin));
  link.hostname = 'localhost';
  const { page } = await openPage(t, link.href);
  const answered = await watchNetwork(page);
  const post = (path: string, body: object) =>
    page.evaluate(
      `fetch('/api/auth/${path}', { method: 'POST', headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(
        JSON.stringify(body),
      )} }).then((response) => response.status)`,
    );
  const person = { name: 'Ada', email: 'ada@example.com', password: PASSWORD };
  assert.equal(await post('setup', { ...person, token: link.hash.slice(1) }), 201);
  assert.equal(await post('login', { identifier: person.email, password: PASSWORD }), 200);

  const READ = ['/api/auth/session', '/api/bridge/sessions', '/v1/models', '/usage'];
  const WRITE = ['/api/auth/keys', '/v1/chat/completions'];
  const live = `ws://localhost:${port}/api/bridge/live`;
  for (const path of READ) {
    assert.equal(await answered(path, () => page.evaluate(send(own + path, 'GET'))), '200 with the cookie', path);
  }
  // Let in, and then refused because of what was sent: the type of the body is wrong.
  for (const path of WRITE) {
    assert.equal(await answered(path, () => page.evaluate(send(own + path, 'POST'))), '415 with the cookie', path);
  }
  assert.equal(await page.evaluate(socketFrom(live)), 'open');

  // Another port of this host is the same site: the browser sends the cookie, and we refuse it.
  await page.goto(elsewhere);
  for (const path of READ) {
    assert.equal(await answered(path, () => page.evaluate(send(own + path, 'GET'))), '403 with the cookie', path);
  }
  for (const path of WRITE) {
    assert.equal(await answered(path, () => page.evaluate(send(own + path, 'POST'))), '403 with the cookie', path);
  }
  assert.equal(await page.evaluate(socketFrom(live)), 'refused');

  // A frame shows neither a page of ours nor what the cookie opens.
  for (const path of ['/setup', '/api/auth/session']) {
    await page.goto(elsewhere);
    await page.evaluate(`new Promise((loaded) => document.body.append(Object.assign(document.createElement('iframe'),
      { src: '${own}${path}', onload: () => loaded(null) })))`);
    const [, frame] = page.frames();
    assert.match(frame?.url() ?? '', /^chrome-error:/, `${path} is framed`);
  }

  // A form needs no permission of ours to be sent; it brings a type that we do not take, and the wrong origin.
  for (const path of WRITE) {
    await page.goto(elsewhere);
    const form = `<form method="post" enctype="text/plain" action="${own}${path}"><input name="x" value="y"></form>`;
    const found = await answered(path, () =>
      page.evaluate(`document.body.innerHTML = ${JSON.stringify(form)}; document.forms[0].submit()`),
    );
    assert.equal(found, '403 with the cookie', `form to ${path}`);
    await page.waitForURL(own + path);
  }

  // Another host is another site: the cookie stays at home.
  await page.goto(other);
  for (const path of READ) {
    const found = await answered(path, () => page.evaluate(send(own + path, 'GET')));
    assert.match(found, /^40[13]$/, path);
  }
  assert.equal(await page.evaluate(socketFrom(live)), 'refused');

  // All of that has ended nothing of the person.
  await page.goto(`${own}/setup`);
  assert.equal(
    await answered('/api/auth/session', () => page.evaluate(send(`${own}/api/auth/session`, 'GET'))),
    '200 with the cookie',
  );
});
