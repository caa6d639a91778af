import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { JobList, JobStatistics } from '../../../src/bridge/contract/jobs.ts';
import { failed, type PeerAnswer } from '../../../src/bridge/forwarding/call-node.ts';
import { createMergedJobs, isMergedMethod, nameNode } from '../../../src/bridge/forwarding/merged-jobs.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { asMain, asReview, everythingTo, startNode } from '../../kit/bridge/start-nodes.ts';
import fc from '../../kit/properties.ts';
import { until } from '../../kit/until.ts';

const IN_TURN = '{ rules: [{ methods: [app.jobs.submit], target: { selector: { role: x }, strategy: round_robin } }] }';

type Credential = typeof asMain;
const jobsOf = async (url: string, credential: Credential, params: object = {}) =>
  (await call(url, 'app.jobs.list', params, credential)).result as unknown as JobList;
const statsOf = async (url: string, credential: Credential) =>
  (await call(url, 'app.jobs.stats', {}, credential)).result as unknown as JobList & Record<string, never>;
const submit = async (url: string, credential: Credential, params: object = {}) =>
  (await call(url, 'app.jobs.submit', { taskPrompt: 'work', ...params }, credential)).result?.jobId as string;

test('DB-15: lists and statistics at an edge have the jobs that it forwarded, and name a node that is down', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const c = await startNode(t, { id: 'c' });
  const peers = { b: { url: b.url, more: 'role: x' }, c: { url: c.url, more: 'role: x' } };
  const options = { id: 'a', peers, forwarding: IN_TURN };
  const first = await startNode(t, options);
  const before = await jobsOf(first.url, asMain);
  assert.deepEqual([before.jobs, before.nodes], [[], [{ nodeId: 'a', status: 'ok' }]]);
  const ids: string[] = [];
  for (let count = 0; count < 4; count += 1) ids.push(await submit(first.url, asMain));
  const ofReview = await submit(first.url, asReview);
  await submit(b.url, asMain);
  await until('the jobs to end', async () => (await jobsOf(first.url, asMain)).summary.completed === 5);
  await first.stop();
  const a = await startNode(t, { ...options, after: first });

  const { jobs, summary, nextCursor, nodes } = await jobsOf(a.url, asMain);
  assert.deepEqual(
    jobs.map(({ jobId }) => jobId),
    [...ids, ofReview].sort().reverse(),
  );
  assert.deepEqual([...new Set(jobs.map(({ nodeId }) => nodeId))].sort(), ['b', 'c']);
  assert.deepEqual([summary.total, nextCursor], [5, null]);
  assert.deepEqual(nodes?.map(({ nodeId, status }) => `${nodeId} ${status}`).sort(), ['a ok', 'b ok', 'c ok']);
  const own = await jobsOf(a.url, asReview);
  assert.deepEqual(
    own.jobs.map(({ jobId }) => jobId),
    [ofReview],
  );
  const paged: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: JobList = await jobsOf(a.url, asMain, { limit: 2, ...(cursor !== '' && { cursor }) });
    paged.push(...page.jobs.map(({ jobId }) => jobId));
    cursor = page.nextCursor;
  }
  assert.deepEqual(paged, [...ids, ofReview].sort().reverse());
  const statistics = await statsOf(a.url, asMain);
  assert.deepEqual(
    [statistics.summary.completed, Object.keys(statistics.byProvider ?? {}).sort()],
    [5, ['agent-of-b', 'agent-of-c']],
  );
  const job = jobs.find(({ nodeId }) => nodeId === 'c');
  assert.equal((await call(a.url, 'app.jobs.get', { jobId: job?.jobId }, asMain)).result?.nodeId, 'c');
  const { error } = await call(a.url, 'app.jobs.list', { cursor: 'nonsense' }, asMain);
  assert.equal(error?.code, -32602);

  await c.stop();
  for (const report of [await jobsOf(a.url, asMain), await statsOf(a.url, asMain), await jobsOf(a.url, asMain)]) {
    const down = report.nodes?.find(({ status }) => status === 'unavailable');
    assert.equal(down?.nodeId, 'c');
    assert.match(down?.error ?? '', /listens|reached|cut|connection/);
    assert.ok(report.summary.total < 5 && report.summary.total > 0);
  }
});

test('DB-15: a list that a rule forwards says which node answers', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  await submit(a.url, asMain);
  const { jobs, nodes } = await jobsOf(a.url, asMain);
  assert.deepEqual([jobs[0]?.nodeId, nodes], ['b', [{ nodeId: 'b', status: 'ok' }]]);
  assert.deepEqual((await statsOf(a.url, asMain)).nodes, [{ nodeId: 'b', status: 'ok' }]);
  await b.stop();
  assert.match((await call(a.url, 'app.jobs.list', {}, asMain)).error?.message ?? '', /Node "b"/);
});

test('DB-15: whatever the nodes have and however large their pages are, paging gives every job once, in order', async () => {
  const page = (ids: readonly string[], size: number, cursor: string, limit: number) => {
    const left = ids
      .filter((id) => cursor === '' || id < cursor)
      .sort()
      .reverse();
    const taken = left.slice(0, Math.min(size, limit));
    const nextCursor = taken.length < left.length ? (taken.at(-1) ?? null) : null;
    return { jobs: taken.map((jobId) => ({ jobId, result: null })), summary: { total: ids.length }, nextCursor };
  };
  const anyNode = fc.record({ size: fc.integer({ min: 1, max: 5 }), isDown: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyNode, { minLength: 1, maxLength: 4 }),
      fc.uniqueArray(fc.tuple(fc.nat(60), fc.nat(3)), { maxLength: 30, selector: ([id]) => id }),
      fc.integer({ min: 1, max: 7 }),
      async (nodes, jobs, limit) => {
        const idsOf = (node: number) =>
          jobs.filter(([, at]) => at % nodes.length === node).map(([id]) => `job-${String(id).padStart(3, '0')}`);
        const merge = createMergedJobs({
          localId: 'n0',
          downReason: () => undefined,
          async ask(asked, _method, { nodeId }) {
            const index = Number(nodeId.slice(1));
            if (nodes[index]?.isDown) return failed('it is down', 'not_started', true);
            const { cursor = '' } = asked.params as { cursor?: string };
            return { kind: 'result', result: page(idsOf(index), nodes[index]?.size ?? 1, cursor, limit) };
          },
        });
        const places = nodes.slice(1).map((_, index) => ({ nodeId: `n${index + 1}`, owner: 'main' }));
        const seen: string[] = [];
        for (let cursor: string | null = ''; cursor !== null; ) {
          const asked = { params: { limit, cursor } } as unknown as MethodCall<BridgeClient>;
          const here = page(idsOf(0), nodes[0]?.size ?? 1, cursor, limit);
          const list = (await merge(asked, 'app.jobs.list', places, () => here)) as JobList;
          assert.ok(list.jobs.length <= limit && (list.jobs.length > 0 || list.nextCursor === null));
          assert.equal(list.nodes?.length, nodes.length, 'every node is named, whether it answers or not');
          seen.push(...list.jobs.map(({ jobId }) => jobId));
          cursor = list.nextCursor;
        }
        const expected = nodes.flatMap(({ isDown }, index) => (index > 0 && isDown ? [] : idsOf(index)));
        assert.deepEqual(seen, expected.sort().reverse());
      },
    ),
    { numRuns: 100, endOnFailure: true },
  );
});

/** Merges what is here with what the nodes answer. A text is why a node is known to be down. */
async function merged(
  method: 'app.jobs.list' | 'app.jobs.stats',
  here: object,
  nodes: Record<string, PeerAnswer | string>,
  params = {},
) {
  const asked: string[] = [];
  const merge = createMergedJobs({
    localId: 'a',
    downReason: (nodeId) => (typeof nodes[nodeId] === 'string' ? nodes[nodeId] : undefined),
    async ask(_call, asks, { nodeId, owner }) {
      asked.push(`${asks} ${nodeId} ${owner}`);
      return nodes[nodeId] as PeerAnswer;
    },
  });
  const places = Object.keys(nodes).map((nodeId) => ({ nodeId, owner: 'main' }));
  const result = await merge({ params } as unknown as MethodCall<BridgeClient>, method, places, () => here);
  return { result, asked };
}
const summary = (pending: number, running: number, completed: number, failures: number) => ({
  ...{ pending, running, completed, failed: failures },
  total: pending + running + completed + failures,
});
const answered = (result: unknown): PeerAnswer => ({ kind: 'result', result });

test('DB-15: statistics of several nodes are sums, the oldest wait, and an average by the number of ended jobs', async () => {
  const here = {
    summary: summary(1, 2, 1, 0),
    byProvider: { one: summary(1, 2, 1, 0) },
    oldestPendingMs: 50,
    averageDurationMs: 100,
  };
  const there = {
    summary: summary(0, 1, 2, 1),
    byProvider: { one: summary(0, 1, 0, 0), two: summary(0, 0, 2, 1) },
    oldestPendingMs: 70,
    averageDurationMs: 201,
  };
  const error = { status: 500, code: -32603, message: 'It broke.', data: {} };
  const { result, asked } = await merged('app.jobs.stats', here, {
    b: answered(there),
    c: 'nothing listens',
    d: { kind: 'error', error },
    e: failed('it is silent', 'unknown'),
    f: answered({ summary: 'odd', averageDurationMs: Number.NaN, oldestPendingMs: '9' }),
  });
  const statistics = result as JobStatistics;
  assert.deepEqual(statistics.summary, summary(1, 3, 3, 1));
  assert.deepEqual(statistics.byProvider, { one: summary(1, 3, 1, 0), two: summary(0, 0, 2, 1) });
  assert.deepEqual([statistics.oldestPendingMs, statistics.averageDurationMs], [70, 176]);
  assert.deepEqual(
    statistics.nodes?.toSorted((one, other) => (one.nodeId < other.nodeId ? -1 : 1)),
    [
      { nodeId: 'a', status: 'ok' },
      { nodeId: 'b', status: 'ok' },
      { nodeId: 'c', status: 'unavailable', error: 'nothing listens' },
      { nodeId: 'd', status: 'unavailable', error: 'It broke.' },
      { nodeId: 'e', status: 'unavailable', error: 'it is silent' },
      { nodeId: 'f', status: 'ok' },
    ],
  );
  assert.deepEqual(
    asked,
    ['b', 'd', 'e', 'f'].map((id) => `app.jobs.stats ${id} main`),
    'one that is down is not asked',
  );
  const none = await merged('app.jobs.stats', { ...here, summary: summary(4, 0, 0, 0) }, {});
  assert.equal((none.result as JobStatistics).averageDurationMs, 0, 'no job has ended');
});

test('DB-15: a list has a hundred jobs unless told otherwise, those of each node by name, and no odd ones', async () => {
  const jobs = (from: number, count: number) =>
    Array.from({ length: count }, (_, index) => ({
      jobId: `job-${String(from + index).padStart(4, '0')}`,
      result: null,
    }));
  const here = { jobs: jobs(0, 80), summary: summary(0, 0, 80, 0), nextCursor: null };
  const there = { jobs: [...jobs(1000, 60), { jobId: 7 }, 'odd'], summary: summary(0, 0, 60, 0), nextCursor: null };
  const list = (await merged('app.jobs.list', here, { b: answered(there) })).result as JobList;
  assert.equal(list.jobs.length, 100);
  assert.deepEqual([list.jobs[0]?.nodeId, list.jobs[59]?.nodeId, list.jobs[60]?.nodeId], ['b', 'b', 'a']);
  assert.deepEqual([list.nextCursor, list.summary.total], [list.jobs.at(-1)?.jobId, 140]);
  const all = (await merged('app.jobs.list', here, { b: answered({ jobs: 'odd' }) }, { limit: 80 })).result as JobList;
  assert.deepEqual([all.jobs.length, all.nextCursor], [80, null]);
  const long = jobs(0, 3).map((job) => ({ ...job, result: 'x'.repeat(5 * 1024 * 1024) }));
  const cut = (await merged('app.jobs.list', { ...here, jobs: long }, {})).result as JobList;
  assert.deepEqual([cut.jobs.length, cut.nextCursor], [2, 'job-0001'], 'long results end a page');
});

test('DB-15: what a node answers about jobs names the node, once', () => {
  const of = (method: string, result: unknown) => {
    nameNode(method, result, 'b');
    return result;
  };
  assert.deepEqual(of('app.jobs.get', { jobId: 'j' }), { jobId: 'j', nodeId: 'b' });
  const nodes = [{ nodeId: 'b', status: 'ok' }];
  assert.deepEqual(of('app.jobs.list', { jobs: [{ jobId: 'j' }] }), { jobs: [{ jobId: 'j', nodeId: 'b' }], nodes });
  assert.deepEqual(of('app.jobs.stats', {}), { nodes });
  assert.deepEqual(of('app.jobs.list', { jobs: [{}], nodes: [] }), { jobs: [{}], nodes: [] }, 'a node further on has');
  assert.deepEqual(of('session.start', { jobs: [{}] }), { jobs: [{}] });
  for (const odd of [null, 'text', undefined]) assert.equal(of('app.jobs.list', odd), odd);
  assert.deepEqual(['app.jobs.list', 'app.jobs.stats', 'app.jobs.get'].map(isMergedMethod), [true, true, false]);
});
