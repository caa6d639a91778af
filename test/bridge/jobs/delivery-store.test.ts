import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createJobDeliveryStore, createJobStore } from '../../../src/bridge/storage/job-store.ts';
import { makeId, waitingJob } from '../../kit/bridge/job-rows.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const DONE = { providerId: 'one', outcome: '{"result":null,"error":null,"errorCode":null}' } as const;

for (const engine of engines) {
  describe(`the store of deliveries on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = async () => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      return { jobs: createJobStore(database), deliveries: createJobDeliveryStore(database) };
    };

    test('B-75: attempts are counted before they are made, and two bridges do not make the same one', async () => {
      const { jobs, deliveries } = await open();
      const job = waitingJob({ webhook_url: 'http://receiver' });
      await jobs.add(job);
      const delivery = { id: makeId('dlv_'), job_id: job.id, kind: 'webhook', attempts: 0, due_at: 3000 } as const;
      await jobs.end(job, { ...DONE, status: 'failed', now: 3000 }, [delivery]);
      assert.deepEqual(await deliveries.due(2999, 60_000, 10), []);
      assert.deepEqual(await deliveries.due(3000, 60_000, 10), [delivery]);
      assert.deepEqual(await deliveries.due(1000, 2999, 10), [delivery], 'nothing waits so long');
      assert.equal(await deliveries.beginAttempt(delivery, 3000, 20_000), true);
      assert.equal(await deliveries.beginAttempt(delivery, 3000, 20_000), false);
      assert.equal((await jobs.find(job.id))?.webhook_tries, 1);
      assert.deepEqual(await deliveries.due(19_999, 60_000, 10), []);
      await deliveries.postpone(delivery, 5000, { now: 4000, detail: 'HTTP 503' });
      const [again] = await deliveries.due(5000, 60_000, 10);
      assert.equal(again?.attempts, 1);
      await deliveries.beginAttempt({ ...delivery, attempts: 1 }, 5000, 20_000);
      await deliveries.finish({ ...delivery, attempts: 1 }, true, { now: 6000, detail: 'HTTP 204' });
      const about = { delivery_id: delivery.id, job_id: job.id, kind: 'webhook' };
      assert.deepEqual(await deliveries.attempts(job.id), [
        { ...about, attempt: 1, started_at: 3000, ended_at: 4000, result: 'failed', detail: 'HTTP 503' },
        { ...about, attempt: 2, started_at: 5000, ended_at: 6000, result: 'sent', detail: 'HTTP 204' },
      ]);
      assert.deepEqual(await deliveries.due(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 10), []);
      assert.equal((await jobs.find(job.id))?.webhook_sent, 1);
    });

    test('an attempt that ends late changes nothing about a later one, and what was sent stays sent', async () => {
      const { jobs, deliveries } = await open();
      const endedWithWebhook = async () => {
        const job = waitingJob({ webhook_url: 'http://receiver' });
        const first = { id: makeId('dlv_'), job_id: job.id, kind: 'webhook', attempts: 0, due_at: 3000 } as const;
        await jobs.add(job);
        await jobs.end(job, { ...DONE, status: 'failed', now: 3000 }, [first]);
        // The bridge of the first attempt is frozen, and another one makes the second attempt.
        await deliveries.beginAttempt(first, 3000, 20_000);
        const second = { ...first, attempts: 1 };
        await deliveries.beginAttempt(second, 20_000, 50_000);
        return { job, first, second };
      };
      const end = { now: 30_000, detail: '' };
      const late = await endedWithWebhook();
      await deliveries.postpone(late.first, 31_000, end);
      assert.deepEqual(await deliveries.due(49_999, 60_000, 10), [], 'the second attempt is under way');
      await deliveries.finish(late.first, false, end);
      assert.equal((await deliveries.due(50_000, 60_000, 10)).length, 1);
      await deliveries.finish(late.second, true, end);
      const sent = await endedWithWebhook();
      await deliveries.finish(sent.first, true, end);
      await deliveries.finish(sent.second, false, end);
      for (const { job } of [late, sent]) assert.equal((await jobs.find(job.id))?.webhook_sent, 1);
      assert.deepEqual(await deliveries.due(50_000, 60_000, 10), []);
    });
  });
}
