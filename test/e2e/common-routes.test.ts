import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startProgram } from '../kit/running-program.ts';
import { ROUTES } from './route-inventory.ts';

const program = await startProgram({ after });
const completions = await startProgram({ after }, { args: ['completions'] });

test('GET / is the API page for browsers and a line of text for everything else', async () => {
  const page = await fetch(program.url, { headers: { accept: 'text/html,*/*' } });
  assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
  const line = await fetch(program.url);
  assert.match(await line.text(), /^trestle \S+ is running\n$/);
});

test('P-32: GET / of completions alone is the API page, whatever is asked for', async () => {
  const page = await fetch(completions.url);
  assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
});

test('O-02: the page needs nothing from elsewhere and has a strict policy', async () => {
  const page = await fetch(`${program.url}/docs`);
  const policy = page.headers.get('content-security-policy') ?? '';
  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.equal(policy.includes('unsafe'), false);
  assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  const html = await page.text();
  const links = [...html.matchAll(/(?:src|href)="([^"#][^"]*)"/g)].map((match) => match[1] ?? '');
  const assets = links.filter((link) => !link.startsWith('data:'));
  assert.ok(assets.length >= 2);
  for (const asset of assets) {
    assert.match(asset, /^\/(docs\b|console$|openapi\.json$)/);
    assert.equal((await fetch(`${program.url}${asset}`)).status, 200, asset);
  }
});

test('O-02: the console and the pages of accounts need nothing from elsewhere and have the same strict policy', async () => {
  for (const path of ['/console', '/setup', '/device', '/login']) {
    const page = await fetch(`${program.url}${path}`);
    const policy = page.headers.get('content-security-policy') ?? '';
    assert.match(policy, /default-src 'none'.*frame-ancestors 'none'.*trusted-types 'none'/, path);
    assert.doesNotMatch(policy, /unsafe|\*|https?:/, path);
    assert.equal(page.headers.get('referrer-policy'), 'no-referrer', path);
    const html = await page.text();
    assert.doesNotMatch(html, /<script>|<style|\son\w+=/, path);
    for (const [, asset = ''] of html.matchAll(/(?:src|href)="(\/[^"]+)"/g)) {
      assert.equal((await fetch(`${program.url}${asset}`)).status, 200, `${path}: ${asset}`);
    }
  }
});

test('O-02: every answer has a content type with charset, nosniff and a request id', async () => {
  const paths = [
    '/',
    '/healthz',
    '/readyz',
    '/metrics',
    '/openapi.json',
    '/docs',
    '/nothing',
    '/v1/nothing',
    '/acp/rpc',
  ];
  for (const path of [...paths, '/v1/models', '/api/ping']) {
    const { headers } = await fetch(`${program.url}${path}`);
    assert.match(headers.get('content-type') ?? '', /charset=utf-8/, path);
    assert.equal(headers.get('x-content-type-options'), 'nosniff', path);
    assert.match(headers.get('x-request-id') ?? '', /^[A-Za-z0-9_-]+$/, path);
  }
});

test('O-03: what is refused takes the shape of the service that owns the path', async () => {
  const body = async (path: string) => (await (await fetch(`${program.url}${path}`)).json()) as Record<string, unknown>;
  assert.equal((await body('/acp/nothing')).jsonrpc, '2.0');
  assert.deepEqual(Object.keys((await body('/v1/nothing')).error as object), ['message', 'type', 'param', 'code']);
  assert.deepEqual(Object.keys((await body('/nothing')).error as object), ['code', 'message', 'requestId']);
});

test('B-22: /openapi.json describes every route of every service, and every method', async () => {
  const response = await fetch(`${program.url}/openapi.json`);
  const document = (await response.json()) as { openapi: string; info: object; paths: Record<string, object> };
  assert.equal(document.openapi, '3.1.0');
  assert.deepEqual(document.info, { title: 'Trestle', version: '1.0.0' });
  const served = Object.entries(document.paths).map(([path, operations]) => {
    const methods = Object.keys(operations).map((method) => method.toUpperCase());
    return `${path} ${methods.sort().join(' ')}`;
  });
  assert.deepEqual(served.sort(), ROUTES);
  assert.match(JSON.stringify(document), /acp\.capabilities/);
});

test('/metrics has bounded labels: patterns, never paths', async () => {
  await fetch(`${program.url}/some/path/that/nobody/serves`);
  await fetch(`${program.url}/v1/models`);
  const text = await (await fetch(`${program.url}/metrics`)).text();
  assert.match(text, /route="\/v1\/models"/);
  assert.equal(text.includes('nobody'), false);
  assert.match(text, /database_commits\{database="bridge"\} \d+/);
  assert.match(text, /process_resident_memory_bytes/);
});

test('/metrics is for this machine, or for anyone who has its token', async (t) => {
  const proxied = { headers: { 'x-forwarded-for': '203.0.113.9' } };
  assert.equal((await fetch(`${program.url}/metrics`, proxied)).status, 403);
  const token = 'metrics-token-3f5b7c9d';
  const withToken = await startProgram(t, { environment: { TRESTLE_METRICS_TOKEN: token } });
  assert.equal((await fetch(`${withToken.url}/metrics`, proxied)).status, 401);
  const headers = { ...proxied.headers, authorization: `Bearer ${token}` };
  assert.equal((await fetch(`${withToken.url}/metrics`, { headers })).status, 200);
});
