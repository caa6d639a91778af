import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cardText, neutralise } from '../../../src/bridge/jobs/deliveries.ts';
import { endedJob, jobWhen, submit } from '../../kit/bridge/job-client.ts';
import { endedRow } from '../../kit/bridge/job-rows.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import fc from '../../kit/properties.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider, telling } from '../../kit/scripted-provider.ts';

const outcome = (result: object | null, error: string | null = null) =>
  JSON.stringify({ result, error, errorCode: null });

test('B-83: a card calls nobody, holds no HTML and hides no address behind a text', () => {
  assert.equal(neutralise('@everyone and @channel'), '@\u200beveryone and @\u200bchannel');
  assert.equal(
    neutralise('<script>alert(1)</script> <!here> <@U1>'),
    '&lt;script&gt;alert(1)&lt;/script&gt; &lt;!here&gt; &lt;@\u200bU1&gt;',
  );
  assert.equal(neutralise('[your bank](https://evil.example)'), '\\[your bank\\](https://evil.example)');
  assert.equal(neutralise('\\[your bank\\](https://evil.example)'), '\\\\\\[your bank\\\\\\](https://evil.example)');
  assert.equal(neutralise('![x](https://evil.example/pixel)'), '!\\[x\\](https://evil.example/pixel)');
  assert.equal(neutralise('&lt;b&gt;'), '&amp;lt;b&amp;gt;');
});

test('B-83: whatever an agent says, no bracket is left unescaped and no mention whole', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom('\\', '[', ']', '(', ')', '@', '<', '>', '&', 'a', '!') }),
      (text) => {
        const safe = neutralise(text);
        assert.doesNotMatch(safe, /[<>]/);
        assert.doesNotMatch(safe, /@(?!\u200b)/);
        // A bracket counts as text only behind an odd number of backslashes.
        for (const [, slashes = ''] of safe.matchAll(/(\\*)[[\]]/g)) assert.equal(slashes.length % 2, 1, safe);
      },
    ),
  );
});

test('a card has a heading with id and status, then the summary, the output or the error', () => {
  const job = endedRow({ outcome: outcome({ summary: 'short', output: 'long' }) });
  assert.equal(cardText(job), `**Job ${job.id}: completed**\n\nshort`);
  assert.ok(cardText({ ...job, outcome: outcome({ summary: '', output: 'long' }) }).endsWith('\n\nlong'));
  assert.ok(cardText({ ...job, status: 'failed', outcome: outcome(null, 'broken') }).endsWith('failed**\n\nbroken'));
  assert.ok(cardText({ ...job, outcome: outcome({ summary: 'x'.repeat(10_000) }) }).length < 4000);
});

test('B-83: a job with a target sends its card through the tools proxy, once', async (context) => {
  const tools = await startScriptedHttp(context, ({ response }) => void response.end('{"ok":true}'));
  const says = telling([], { kind: 'completed', output: 'done, @all: [x](http://y)', stopReason: 'end_turn' });
  const { url } = await startBridge(context, {
    providers: [createScriptedProvider('one', says)],
    settings: `gateway: { tools_url: "${tools.url}/tools/invoke" }\n`,
  });
  const jobId = await submit(url, { target: '+4912345', channel: 'whatsapp', accountId: 'me' });
  await jobWhen(url, jobId, ({ cardSent }) => cardSent);
  const message = `**Job ${jobId}: completed**\n\ndone, @\u200ball: \\[x\\](http://y)`;
  const args = { target: '+4912345', channel: 'whatsapp', accountId: 'me', message };
  assert.deepEqual(
    tools.requests.map(({ body }) => JSON.parse(body)),
    [{ tool: 'message', action: 'send', args }],
  );
});

test('a card that cannot be sent is given up, and the job stays what it is', async (context) => {
  const tools = await startScriptedHttp(context, ({ response }) => void response.writeHead(500).end());
  const { url } = await startBridge(context, {
    providers: [createScriptedProvider('one')],
    settings: `gateway: { tools_url: "${tools.url}/tools/invoke" }\n`,
  });
  const jobId = await submit(url, { target: 'someone' });
  await tools.arrived(1);
  const job = await endedJob(url, jobId);
  assert.deepEqual([job.status, job.cardSent], ['completed', false]);
  assert.equal(tools.requests.length, 1);
});
