import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { fetchUrlTool, htmlToText } from '../../../../src/bridge/agents/builtin/tools/fetch-url.ts';
import type { ToolContext } from '../../../../src/bridge/agents/builtin/tools/tool.ts';
import { createCallbackRules, createCheckedFetch } from '../../../../src/platform/callbacks/callback-post.ts';
import { scriptedAgent, toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { timeLimit } from '../../../kit/time.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

function checkedFetch(allow: readonly string[]): typeof fetch {
  const rules = { allow, allowedBy: 'agents.builtin.fetch_allow', isOpen: () => false, ownAddresses: () => [] };
  return createCheckedFetch(createCallbackRules(rules));
}

/** A server on loopback, which the operator has opened, and what a tool gets that may reach it. */
async function setUp(t: TestContext, answer: (asked: IncomingMessage, response: ServerResponse) => void) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    answer(request, response);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const web = { fetch: checkedFetch(['127.0.0.1/32']), hosts: ['*'], version: '1.2.3' };
  const context: ToolContext = { ...toolContext('/'), web };
  return { url: `http://127.0.0.1:${port}`, port, asked, web, context };
}

const refusal = (pattern: RegExp) => (error: { code?: string; details: { reason: string } }) => {
  assert.equal(error.code, 'TOOL_CALL_REFUSED');
  assert.match(error.details.reason, pattern);
  return true;
};

test('fetch a page as text, with its headings and links', async (t) => {
  const { url, context } = await setUp(t, (asked, response) => {
    response.setHeader('content-type', 'text/html; charset=iso-8859-1');
    response.end(Buffer.from(`<title>T</title><h2>Caf\u00e9</h2><p>See <a href=/x?a=1&amp;b=2>this</a>.`, 'latin1'));
    assert.equal(asked.headers['user-agent'], 'trestle/1.2.3');
    assert.equal(asked.headers.cookie, undefined);
  });
  const { text, failed } = await fetchUrlTool.run({ url: `${url}/a` }, context);
  assert.equal(text, `[${url}/a, status 200]\nT\n\n## Caf\u00e9\n\nSee this (${url}/x?a=1&b=2).`);
  assert.equal(failed, undefined);
});

test('an element with a name that every object has is an element like any other', () => {
  const names = Object.getOwnPropertyNames(Object.prototype);
  for (const name of names) assert.equal(htmlToText(`a <${name}>b</${name}> c`, 'http://x/').includes('c'), true, name);
  assert.equal(htmlToText('a <constructor>b</constructor> c', 'http://x/'), 'a b c');
  assert.equal('lastIndex' in Object, false, 'nothing was written to what the name stands for elsewhere');
});

test('refuse addresses inside, in every form, before anything is sent', async (t) => {
  const { context, web, port, asked } = await setUp(t, (_asked, response) => void response.end('secret'));
  const guarded = { ...context, web: { ...web, fetch: checkedFetch([]) } };
  const hosts = ['127.0.0.1', 'localhost', '[::1]', '0x7f.1', '[::ffff:127.0.0.1]', '169.254.169.254', '10.0.0.1'];
  for (const host of [...hosts, 'metadata.google.internal']) {
    await assert.rejects(
      fetchUrlTool.run({ url: `http://${host}:${port}/` }, guarded),
      refusal(/^This may not be fetched: its address is not open/),
    );
  }
  for (const url of ['file:///etc/passwd', 'ftp://example.com/', 'nonsense', 'http://user:pass@example.com/']) {
    await assert.rejects(fetchUrlTool.run({ url }, guarded), refusal(/^This may not be fetched: /));
  }
  assert.deepEqual(asked, []);
});

test('reach listed hosts alone, and none where there is no network', async (t) => {
  const { url, context, web, asked } = await setUp(t, (_asked, response) => void response.end('x'));
  const listed = { ...context, web: { ...web, hosts: ['*.example.com'] } };
  await assert.rejects(fetchUrlTool.run({ url }, listed), refusal(/bridge\.sandbox_hosts/));
  await assert.rejects(fetchUrlTool.run({ url }, { ...context, web: undefined }), refusal(/no network/));
  assert.deepEqual(asked, []);
});

test('follow a redirect on the same host, return one to another host, and end a circle', async (t) => {
  const { url, port, context, asked } = await setUp(t, ({ url: path = '' }, response) => {
    const target: Record<string, string> = {
      '/here': '/there',
      '/away': `http://localhost:${port}/secret`,
      '/circle': '/circle',
      '/file': 'file:///etc/passwd',
    };
    if (target[path] === undefined) response.setHeader('content-type', 'text/plain').end('found');
    else response.writeHead(302, { location: target[path] }).end();
  });
  assert.equal((await fetchUrlTool.run({ url: `${url}/here` }, context)).text, `[${url}/there, status 200]\nfound`);
  const away = await fetchUrlTool.run({ url: `${url}/away` }, context);
  assert.equal(away.text, `[redirected to another host: fetch http://localhost:${port}/secret if you need it]`);
  await assert.rejects(fetchUrlTool.run({ url: `${url}/circle` }, context), refusal(/more than 5 times/));
  const file = await fetchUrlTool.run({ url: `${url}/file` }, context);
  assert.match(file.text, /^\[redirected to another host: fetch file:/);
  assert.equal(asked.includes('/secret'), false);
});

test('check the address again for each redirect', async (t) => {
  const { context, web } = await setUp(t, (_asked, response) => void response.end());
  const sent: string[] = [];
  const redirecting: typeof fetch = async (input) => {
    sent.push(String(input));
    return sent.length === 1
      ? new Response(null, { status: 302, headers: { location: 'http://public.example:22/' } })
      : checkedFetch([])(input);
  };
  const given = { ...context, web: { ...web, fetch: redirecting } };
  await assert.rejects(
    fetchUrlTool.run({ url: 'http://public.example/' }, given),
    refusal(/port 22 may not be called/),
  );
});

test('cut a long page, also one that is packed, and read on', async (t) => {
  const { url, context } = await setUp(t, ({ url: path }, response) => {
    response.setHeader('content-type', 'text/plain');
    if (path === '/bomb') response.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(64 * 2 ** 20, 'a')));
    else response.end('b'.repeat(40_000));
  });
  const first = (await fetchUrlTool.run({ url }, context)).text;
  assert.match(first, /b\n\[there is more: go on with start 32768\]$/);
  const rest = (await fetchUrlTool.run({ url, start: 32_768 }, context)).text;
  assert.equal(rest, `[${url}, status 200]\n${'b'.repeat(40_000 - 32_768)}`);
  const last = (await fetchUrlTool.run({ url: `${url}/bomb`, start: 4 * 2 ** 20 - 10 }, context)).text;
  assert.equal(last, `[${url}/bomb, status 200]\n${'a'.repeat(10)}\n[cut: the page has more than 4194304 bytes]`);
});

test('name the type of what is not text, and the status of a failure', async (t) => {
  const { url, context } = await setUp(t, ({ url: path }, response) => {
    if (path === '/image') response.setHeader('content-type', 'image/png').end(Buffer.alloc(10));
    else response.writeHead(404, { 'content-type': 'application/problem+json' }).end('{"detail":"gone"}');
  });
  const image = await fetchUrlTool.run({ url: `${url}/image` }, context);
  assert.equal(image.text, `[${url}/image, status 200]\n[image/png, not shown]`);
  const missing = await fetchUrlTool.run({ url: `${url}/x` }, context);
  assert.deepEqual([missing.text, missing.failed], [`[${url}/x, status 404]\n{"detail":"gone"}`, true]);
});

test('give up a page that does not come, and stop with the turn', async (t) => {
  const { url, context, asked } = await setUp(t, () => undefined);
  const clock = createFakeClock();
  const slow = fetchUrlTool.run({ url }, { ...context, commands: { ...context.commands, clock } });
  await until('the request', () => asked.length === 1);
  await Promise.all([assert.rejects(slow, refusal(/did not come within 30000 ms/)), clock.advance(30_000)]);
  const aborter = new AbortController();
  const stopped = fetchUrlTool.run({ url }, { ...context, signal: aborter.signal });
  await until('the request', () => asked.length === 2);
  aborter.abort();
  await assert.rejects(stopped, { name: 'AbortError' });
});

test('ask for permission with the kind fetch, and offer it only where there are hosts', async (t) => {
  const { url, web, asked } = await setUp(t, (_asked, response) => void response.end('x'));
  const root = await workingDirectory(t);
  const play = (index: number) =>
    index % 2 === 0 ? { calls: [{ name: 'fetch_url', input: { url } }] } : { text: ['done'] };
  const { agent, requests } = scriptedAgent(play, { web });
  const kinds: string[] = [];
  const turn = recordTurn(root, 'Fetch', {
    async ask({ toolKind, title }) {
      kinds.push(`${toolKind}: ${title}`);
      return { optionId: 'reject' };
    },
  });
  await agent.startTurn(turn);
  assert.deepEqual(kinds, [`fetch: Fetch ${url}`]);
  assert.match(String(requests.at(-1)?.messages.at(-1)?.content), /^Refused: the user does not permit this/);
  assert.deepEqual(asked, []);
  await agent.startTurn(recordTurn(root, 'Fetch', { isReadOnly: true }));
  const offered = () => requests.at(-1)?.tools?.map((tool) => tool.function.name) ?? [];
  assert.equal(offered().includes('fetch_url'), false);
  assert.deepEqual(asked, []);
  const without = scriptedAgent(() => ({ text: ['done'] }), { web: { ...web, hosts: [] } });
  await without.agent.startTurn(recordTurn(root, 'Fetch'));
  assert.equal(
    without.requests[0]?.tools?.some((tool) => tool.function.name === 'fetch_url'),
    false,
  );
});

test('turn markup into readable text', () => {
  const page = `<!doctype html><html><head><title>A &amp; B</title><style>p { x: "</p>" }</style>
    <script>if (a < b) document.write("<p>no</p>")</script></head><body><!-- <p>hidden</p> -->
    <h1>One   two</h1><p>First<br>second &#8364;&#x41;&unknown; 1 < 2</p>
    <ul><li>a</li><li><b>b</b> c</li></ul><table><tr><td>x<td>y</table>
    <pre>  keep
    this</pre><img alt='A picture' src=x><a href="#here">here</a> <a title="a > b" href='page'>page</a></body>`;
  assert.equal(
    htmlToText(page, 'https://example.com/dir/'),
    [
      ...['A & B', '', '# One two', '', 'First', 'second €A&unknown; 1 < 2', '', '- a', '- b c', '', '| x | y', ''],
      ...['  keep', '    this', '', '[image: A picture]here page (https://example.com/dir/page)'],
    ].join('\n'),
  );
});

test('read broken markup to its end, in time that grows with its length only', () => {
  const hostile = ['<a "', '<a href="x', '<!--', '<script>', '<', '</', '&', '<a \'"', '<p>', '\n ', '<svg/><td>'];
  for (const piece of hostile) {
    const started = performance.now();
    htmlToText(piece.repeat(2_000_000 / piece.length), 'https://example.com/');
    assert.ok(performance.now() - started < timeLimit(5_000), piece);
  }
});
