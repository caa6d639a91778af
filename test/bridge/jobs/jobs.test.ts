import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBridge } from '../../contract/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../fakes/scripted-provider.ts';
import { endedJob, submit } from './job-client.ts';

test('a job runs as a turn of its own session and its record tells all about it', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const jobId = await submit(url, { taskPrompt: 'say this' });
  const job = await endedJob(url, jobId);
  console.log(job);
  assert.equal(job.status, 'completed');
});
