import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { browserModule, browserSources, documentOf } from './browser-modules.ts';
import { FakeElement, fakeDocument } from './fake-document.ts';

const HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script>\u001b[31mred\u001b[0m &lt;b&gt;';
const KNOWN_TAGS = /^(section|h3|h4|p|div|details|summary|table|tbody|tr|th|td|pre|ol|ul|li|span|code)$/;

beforeEach(() => {
  Object.assign(globalThis, { document: fakeDocument });
});

afterEach(() => {
  mock.restoreAll();
  Reflect.deleteProperty(globalThis, 'document');
});

/** Sends one request whose answer is given, and hands out what is on the page then. */
async function shown(response: Response | Error, token = ''): Promise<{ panel: FakeElement; sent: Request }> {
  const { createResponseView } = await browserModule('response-view');
  const fetched = mock.method(globalThis, 'fetch', async () => {
    if (response instanceof Error) throw response;
    return response;
  });
  const request = { method: 'POST', url: 'http://localhost:1/it', headers: { accept: 'x/y' }, body: '{}' };
  const view = createResponseView(
    () => request,
    () => token,
  );
  await view.run();
  assert.ok(view.panel instanceof FakeElement);
  const [url, options] = fetched.mock.calls[0]?.arguments ?? [];
  return { panel: view.panel, sent: new Request(String(url), options) };
}

function textOf(panel: FakeElement, label: string): string | undefined {
  return panel.all().find((each) => each.attributes.get('aria-label') === label)?.textContent;
}

function assertOnlyKnownTags(panel: FakeElement): void {
  for (const { tag, attributes } of panel.all()) {
    assert.match(tag, KNOWN_TAGS);
    for (const name of attributes.keys()) assert.match(name, /^(class|role|tabindex|scope|open|aria-label)$/);
  }
}

test('B-64: no source of the page can make markup or code from text', () => {
  const forbidden =
    /innerHTML|outerHTML|insertAdjacent|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc|\beval\b|new Function|import\(|createPolicy|\.style\b/;
  for (const [name, source] of browserSources()) {
    if (name.endsWith('.js')) assert.doesNotMatch(source, forbidden, name);
  }
});

test('B-64: no source of the page stores anything in the browser', () => {
  for (const [name, source] of browserSources()) {
    assert.doesNotMatch(source, /localStorage|sessionStorage|indexedDB|\.cookie\b|history\.(push|replace)State/, name);
  }
});

test('B-64: markup and escapes in an answer are shown as text', async () => {
  const response = new Response(HOSTILE, { headers: { 'content-type': 'text/html', 'x-evil': '<b>bold</b>' } });
  const { panel } = await shown(response);
  assert.equal(textOf(panel, 'Response body'), HOSTILE);
  assert.ok(panel.all().some(({ tag, textContent }) => tag === 'td' && textContent === '<b>bold</b>'));
  assertOnlyKnownTags(panel);
});

test('B-64: markup in JSON, in a status text and in a failure is shown as text', async () => {
  const json = await shown(new Response(JSON.stringify({ evil: HOSTILE }), { status: 418, statusText: '<i>tea</i>' }));
  assert.equal(textOf(json.panel, 'Response body'), JSON.stringify({ evil: HOSTILE }, null, 2));
  assert.match(json.panel.textContent, /418 <i>tea<\/i>/);
  assertOnlyKnownTags(json.panel);
  mock.restoreAll();
  const failed = await shown(new Error(HOSTILE));
  assert.ok(failed.panel.textContent.includes(`failed: ${HOSTILE}`));
  assertOnlyKnownTags(failed.panel);
});

test('B-64: events are listed as they came, and their text is put together as text', async () => {
  const parts = ['Hello ', HOSTILE, ' é😀'];
  const events = parts.map(
    (content) => `event: <u>\ndata: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`,
  );
  const bytes = new TextEncoder().encode(`${events.join('')}data: [DONE]\n\n`);
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const { panel } = await shown(
    new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } }),
  );
  assert.equal(textOf(panel, 'Text so far'), parts.join(''));
  const listed = panel.all().filter(({ tag }) => tag === 'li');
  assert.deepEqual(
    listed.map(({ nodes }) => nodes[0]?.textContent),
    ['<u>', '<u>', '<u>', '4'],
  );
  assert.equal(listed[3]?.nodes[1]?.textContent, '[DONE]');
  assert.match(panel.textContent, /200 · first byte \d+ ms, all \d+ ms · 4 events/);
  assertOnlyKnownTags(panel);
});

test('a long list of events keeps the newest, a long answer its beginning', async () => {
  const headers = { 'content-type': 'text/event-stream' };
  const many = await shown(new Response('data: x\n\n'.repeat(700), { headers }));
  const listed = many.panel.all().filter(({ tag }) => tag === 'li');
  assert.deepEqual([listed.length, listed.at(-1)?.nodes[0]?.textContent], [500, '700']);
  mock.restoreAll();
  const long = await shown(new Response('x'.repeat(3 * 1024 * 1024)));
  assert.equal(textOf(long.panel, 'Response body')?.length, 1024 * 1024);
});

test('the token goes with the request and is shown nowhere', async () => {
  const { panel, sent } = await shown(new Response('{}'), 'the-token');
  assert.equal(sent.headers.get('authorization'), 'Bearer the-token');
  assert.equal(sent.headers.get('accept'), 'x/y');
  assert.doesNotMatch(panel.textContent, /the-token/);
  mock.restoreAll();
  assert.equal((await shown(new Response('{}'))).sent.headers.has('authorization'), false);
});

test('B-64: markup in the description is shown as text; only backticks mark code', async () => {
  const { prose } = await browserModule('element');
  const [before, code, after] = prose(`a <b> \`${HOSTILE}\` c`);
  assert.ok(code instanceof FakeElement);
  assert.deepEqual([before, code.tag, code.textContent, after], ['a <b> ', 'code', HOSTILE, ' c']);

  const { schemaTree } = await browserModule('schema-tree');
  const member = { type: 'object', description: HOSTILE, properties: { [HOSTILE]: { const: HOSTILE } } };
  const tree = schemaTree(documentOf(), { type: 'object', properties: { member }, required: ['member'] });
  assert.ok(tree instanceof FakeElement);
  assert.ok(tree.textContent.includes(HOSTILE));
  assertOnlyKnownTags(tree);
});

test('a recursive schema is drawn only as deep as it is opened', async () => {
  const { schemaTree } = await browserModule('schema-tree');
  const reference = { $ref: '#/components/schemas/Tree' };
  const Tree = { type: 'object', properties: { children: { type: 'array', items: reference } } };
  const tree = schemaTree(documentOf({ Tree }), reference);
  assert.ok(tree instanceof FakeElement);
  assert.equal(tree.textContent, 'childrenTree[]'.repeat(3));
});
