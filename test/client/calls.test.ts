import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportName } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { startBridge } from '../kit/bridge/start-bridge.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { createScriptedProvider } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const transports: readonly TransportName[] = ['sse', 'websocket', 'http'];

for (const transport of transports) {
  test(`over ${transport} every method of the family can be called`, async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const client = clientOf(t, { url, transport });
    const { providerCatalog, gatewayProviders } = await client.capabilities();
    assert.deepEqual(
      providerCatalog.map(({ providerId }) => providerId),
      ['alpha'],
    );
    assert.equal((await client.resolve({ taskPrompt: 'x' })).resolvedProviderId, 'alpha');
    const session = client.session('s');
    await session.start('hello').result;
    await session.cancel();
    await session.close();
    await assert.rejects(session.message('again').result, { code: 'SESSION_CONTINUATION_UNAVAILABLE' });

    const { jobId, status } = await client.jobs.submit({ taskPrompt: 'in the background' });
    assert.equal(status, 'pending');
    const job = await until('the job to end', async () => {
      const current = await client.jobs.get(jobId);
      return current.status === 'pending' || current.status === 'running' ? undefined : current;
    });
    assert.ok(job.status === 'completed');
    assert.equal(job.result?.output, 'in the background');
    assert.deepEqual(
      (await client.jobs.list({ status: 'completed' })).jobs.map((one) => one.jobId),
      [jobId],
    );
    assert.equal((await client.jobs.stats()).summary.completed, 1);
    assert.deepEqual(await client.jobs.get('job-none'), { jobId: 'job-none', status: 'not_found' });
    assert.equal(gatewayProviders.length, 1);
  });

  test(`over ${transport} a submit whose answer is lost becomes one job`, async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const port = Number(new URL(url).port);
    const client = clientOf(t, { url, transport: 'http' });
    let jobs = 0;
    // Cut after more and more bytes: before the call, in the middle of it, and in the middle of the answer.
    for (const after of [10, 300, 500, 700, 900]) {
      const proxy = await startFaultProxy(t, port, (count) => (count < 2 ? { after } : {}));
      const through = clientOf(t, { url: proxy.url, transport });
      const { jobId } = await through.jobs.submit({ taskPrompt: 'once' });
      jobs += 1;
      assert.notEqual((await client.jobs.get(jobId)).status, 'not_found');
      assert.equal((await client.jobs.stats()).summary.total, jobs);
    }
  });
}

test('a call that may not be repeated is not: its connection is lost with it', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  for (const transport of transports) {
    const proxy = await startFaultProxy(t, Number(new URL(url).port), () => ({ after: 250 }));
    const client = clientOf(t, { url: proxy.url, transport, reconnectMs: 200 });
    await assert.rejects(client.tools.invoke({ tool: 'message', action: 'send' }), { code: 'CONNECTION_LOST' });
    if (transport !== 'websocket') assert.equal(proxy.connections(), 1);
  }
});
