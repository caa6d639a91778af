import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { createRemoteAgent } from '../../../src/bridge/agents/remote/create-remote-agent.ts';
import { createArtifactLinks } from '../../../src/bridge/artifacts/artifact-links.ts';
import { createDownload } from '../../../src/bridge/artifacts/artifact-route.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Reply, RequestHead } from '../../../src/platform/http/surface.ts';
import { makeId } from '../../kit/bridge/builtin-agent.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { asMain, asReview, FORWARD_TOKEN, startNode, turn } from '../../kit/bridge/start-nodes.ts';
import fc from '../../kit/properties.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const BYTES = randomBytes(300_000);

/** Writes a file into the working directory and says so. */
const writing: TurnScript = async ({ workingDirectory, report }) => {
  const path = join(workingDirectory, "it's für.bin");
  await writeFile(path, BYTES);
  const rest = { toolCallId: 'w', title: 'write', toolKind: 'edit', locations: [{ path }] };
  report({ kind: 'tool_call', status: 'completed', ...rest });
  return { kind: 'completed', output: 'written', stopReason: 'end_turn' };
};

const linksOf = (result: unknown) =>
  (Object(result).artifacts as { readonly downloadUrl: string }[]).map(({ downloadUrl }) => downloadUrl);

async function downloads(bridge: string, link: string | undefined): Promise<void> {
  const response = await fetch(`${bridge}${link}`);
  assert.equal(response.status, 200);
  const headers = ['content-length', 'content-disposition', 'x-content-type-options', 'content-type'];
  assert.deepEqual(
    headers.map((name) => response.headers.get(name)),
    ['300000', "attachment; filename*=UTF-8''it%27s%20f%C3%BCr.bin", 'nosniff', 'application/octet-stream'],
  );
  assert.ok(Buffer.from(await response.arrayBuffer()).equals(BYTES));
}

async function refused(url: string, link: string | undefined): Promise<readonly unknown[]> {
  const response = await fetch(`${url}${link}`);
  const text = await response.text();
  return [response.status, response.ok ? '' : JSON.parse(text).error?.data?.code];
}

/** Runs a job to its end. */
async function jobResult(url: string, headers: typeof asMain): Promise<unknown> {
  const { result } = await call(url, 'app.jobs.submit', { taskPrompt: 'write', sessionId: 'job' }, headers);
  const get = async () => (await call(url, 'app.jobs.get', { jobId: result?.jobId }, headers)).result;
  await until('the job to end', async () => (await get())?.status === 'completed');
  return (await get())?.result;
}

test('DB-4: a link of a forwarded session or job works at the edge, over two hops and after a restart', async (t) => {
  const far = await startNode(t, { id: 'far', script: writing, linkKey: 1 });
  const hub = await startNode(t, { id: 'hub', peers: { far: far.url }, linkKey: 2 });
  const options = {
    id: 'edge',
    peers: { far: 'http://127.0.0.1:9', hub: hub.url },
    forwarding:
      '{ rules: [{ methods: [session.start, app.jobs.submit], target: { node_id: far } }], routes: [{ target_node_id: far, next_hop_node_id: hub }] }',
    linkKey: 3,
  };
  const edge = await startNode(t, options);
  const { result } = await call(edge.url, 'session.start', turn('s'), asReview);
  const [link] = linksOf(result);
  const [ofJob] = linksOf(await jobResult(edge.url, asMain));
  const list = (await call(far.url, 'app.jobs.list', {}, asMain)).result?.jobs as { result: unknown }[];
  const [atNode] = linksOf(list[0]?.result);
  await downloads(far.url, atNode);
  for (const one of [link, ofJob]) await downloads(edge.url, one);
  assert.deepEqual(await refused(far.url, link), [403, 'ARTIFACT_LINK_INVALID']);
  assert.deepEqual(await refused(edge.url, atNode), [403, 'ARTIFACT_LINK_INVALID']);
  assert.deepEqual(await refused(edge.url, `${link}x`), [403, 'ARTIFACT_LINK_INVALID']);
  await edge.stop();
  const again = await startNode(t, { ...options, after: edge });
  await downloads(again.url, link);
  await call(again.url, 'session.close', { sessionId: 's' }, asReview);
  assert.deepEqual(await refused(again.url, link), [404, 'NOT_FOUND'], 'the session is closed');
  await downloads(again.url, ofJob);
  await hub.stop();
  assert.deepEqual(await refused(again.url, ofJob), [502, 'ARTIFACT_UNREACHABLE']);
});

test('DB-4: a link of a remote agent works at the bridge that the app called, of a multi-agent run too', async (t) => {
  const there = await startBridge(t, {
    providers: [createScriptedProvider('there', writing)],
    isGuarded: true,
    linkKey: 1,
  });
  const far = createRemoteAgent({
    id: 'far.away',
    url: there.url,
    token: MAIN_TOKEN,
    clock: systemClock,
    randomness: systemRandomness,
    makeId,
    logger: silentLogger,
    isScratchFolder: () => true,
    hopLimit: 3,
  });
  const here = await startBridge(t, { providers: [far], linkKey: 2 });
  const { result } = await call(here.url, 'session.start', turn('s'));
  const steps = [{ providerId: 'far.away' }, { providerId: 'far.away' }];
  const team = { ...turn('team'), multiAgent: true, routing: { steps } };
  const ofSteps = linksOf((await call(here.url, 'session.start', team)).result);
  const [link, ...others] = linksOf(result);
  assert.deepEqual([others.length, ofSteps.length], [0, 2]);
  for (const one of [link, ...ofSteps]) await downloads(here.url, one);
  await call(here.url, 'session.close', { sessionId: 's' });
  await until('the file to be gone', async () => (await refused(here.url, link))[0] === 404);
});

/** An edge whose node gives its files as the test says. */
async function edgeOf(t: TestContext, headers: Record<string, string>, status: number, body: string) {
  const node = await startScriptedHttp(t, ({ response }) => {
    response.writeHead(status, headers);
    response.end(body);
  });
  const edge = await startNode(t, { id: 'edge', peers: { b: node.url } });
  const links = createArtifactLinks([new Uint8Array(32).fill(7)]);
  const link = (expiresAt: number, place = 'node.b') => links.relay(place, `/artifacts/sig/${expiresAt}/art_1/a.txt`);
  return { edge, node, link };
}

const LATER = Date.now() + 3_600_000;

test('DB-4: a file is requested with the forward token, once its link was checked', async (t) => {
  const { edge, node, link } = await edgeOf(t, { 'content-type': 'text/evil\tx', 'content-length': '2' }, 200, 'ok');
  assert.deepEqual(await refused(edge.url, link(1)), [410, 'ARTIFACT_EXPIRED']);
  assert.deepEqual(await refused(edge.url, link(LATER, 'node.gone')), [404, 'NOT_FOUND']);
  assert.deepEqual(await refused(edge.url, link(LATER, 'agent.gone')), [404, 'NOT_FOUND']);
  assert.equal(node.requests.length, 0);
  const response = await fetch(`${edge.url}${link(LATER)}`);
  assert.deepEqual([response.headers.get('content-type'), await response.text()], ['application/octet-stream', 'ok']);
  const [seen] = node.requests;
  assert.equal(seen?.path, `/artifacts/sig/${LATER}/art_1/a.txt`);
  assert.equal(seen?.headers.authorization, `Bearer ${FORWARD_TOKEN}`);
  assert.equal(seen?.headers['x-app-forward-hop'], '1');
});

for (const [name, status, headers] of [
  ['too large', 200, { 'content-length': String(64 * 1024 * 1024 + 1) }],
  ['of an unknown size', 200, { 'transfer-encoding': 'chunked' }],
  ['that is said to be elsewhere', 302, { location: 'http://169.254.169.254/', 'content-length': '0' }],
  ['that a broken node has', 500, { 'content-length': '0' }],
] as const) {
  test(`DB-4: a file ${name} is 502, and nothing of it is passed on`, async (t) => {
    const { edge, link } = await edgeOf(t, headers, status, '');
    assert.deepEqual(await refused(edge.url, link(LATER)), [502, 'ARTIFACT_UNREACHABLE']);
  });
}

test('DB-4: a file that ends too early ends the download too, and the bridge goes on', async (t) => {
  const node = await startScriptedHttp(t, ({ response }) => {
    response.writeHead(200, { 'content-length': '1000000' });
    response.write('half', () => response.destroy());
  });
  const edge = await startNode(t, { id: 'edge', peers: { b: node.url } });
  const link = createArtifactLinks([new Uint8Array(32).fill(7)]).relay('node.b', `/artifacts/sig/${LATER}/art_1/a.txt`);
  for (let count = 0; count < 5; count += 1) {
    await assert.rejects(async () => (await fetch(`${edge.url}${link}`)).arrayBuffer());
  }
  assert.equal((await call(edge.url, 'acp.capabilities', {}, asMain)).error, undefined);
});

test('DB-4: a link leads to a link of another bridge and to nothing else, whatever that bridge says', () => {
  const links = createArtifactLinks([new Uint8Array(32)]);
  const segment = fc.oneof(
    fc.constantFrom(
      '..',
      '.',
      '',
      'artifacts',
      'acp',
      'sig',
      '1789000000000',
      'art_1',
      'a%2fb',
      'a.txt',
      '%2e%2e',
      'node.x',
    ),
    fc.string({ maxLength: 12 }),
  );
  const anyLink = fc.array(segment, { maxLength: 8 }).map((parts) => `/artifacts/${parts.join('/')}`);
  fc.assert(
    fc.property(fc.oneof(anyLink, fc.webUrl(), fc.string()), (path) => {
      const signed = links.relay('node.b', path);
      if (signed === undefined) return;
      const read = links.read(signed);
      assert.ok(read !== undefined && 'path' in read);
      assert.equal(read.path, path);
      assert.equal(new URL(read.path, 'http://x').pathname, path, 'it is not resolved to another path');
      assert.equal(links.read(`${signed}/more`), undefined);
    }),
    {
      numRuns: 100,
      examples: [
        ['/artifacts/sig/1789000000000/art_1/a.txt'],
        ['/artifacts/sig/1789000000000/%2e%2e/a.txt'],
        ['/artifacts/sig/1789000000000/.%2E/a.txt'],
      ],
    },
  );
});

test('downloads from elsewhere are limited, and those of one client leave a quarter to the others', async () => {
  const bodies: PassThrough[] = [];
  const download = createDownload({
    artifacts: { find: async () => ({ place: 'agent.one', path: '/file.txt', expiresAt: 0 }) },
    clock: systemClock,
    stopped: new AbortController().signal,
    fromNode: () => Promise.reject(new Error('not asked')),
    async fromAgent() {
      const body = new PassThrough();
      bodies.push(body);
      return { contentType: 'text/plain', sizeBytes: 1, body };
    },
    fromInstance: undefined,
  });
  const reply = { header: () => reply, send: (body: unknown) => body } as unknown as Reply;
  const start = (address: string) => download({ head: { path: '/artifacts/x', address } as RequestHead, reply });
  const startMany = (count: number, address: string) =>
    Promise.all(Array.from({ length: count }, () => start(address)));
  await startMany(48, '10.0.0.1');
  await assert.rejects(start('10.0.0.1'), { code: 'OVERLOADED' });
  await startMany(16, '10.0.0.2');
  await assert.rejects(start('10.0.0.2'), { code: 'OVERLOADED' });
  for (const body of [bodies.at(0), bodies.at(-1)]) {
    assert.ok(body);
    const closed = once(body, 'close');
    body.destroy();
    await closed;
  }
  await start('10.0.0.1');
  await assert.rejects(start('10.0.0.1'), { code: 'OVERLOADED' });
  await start('10.0.0.2');
  for (const body of bodies) body.destroy();
});
