import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { JobList } from '../../../src/bridge/contract/jobs.ts';
import { failed } from '../../../src/bridge/forwarding/call-node.ts';
import { createMergedJobs } from '../../../src/bridge/forwarding/merged-jobs.ts';
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
