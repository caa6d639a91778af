// Two steps: the second works on the output of the first.   node examples/multi-agent.ts [url]
// In your own app: import { createTrestleClient } from 'trestle/client';
import { createTrestleClient } from '../src/client/trestle-client.ts';

const [url = 'http://127.0.0.1:8787'] = process.argv.slice(2);
const { BRIDGE_AUTH_TOKEN: token = '' } = process.env;
const trestle = createTrestleClient({ url, token });

const session = trestle.session(`example-${Date.now()}`);
const turn = session.start('the tide', {
  multiAgent: true,
  routing: {
    orchestrationMode: 'sequence',
    steps: [
      { providerId: 'builtin', prompt: 'One line about {{input}}', outputAs: 'draft' },
      { providerId: 'builtin', prompt: 'Make this better: {{draft}}' },
    ],
  },
});
for await (const { event, message, stepIndex, delta } of turn) {
  if (event.startsWith('multi_agent_')) console.log(`- ${event}: ${message}`);
  else if (delta !== undefined) console.log(`  step ${stepIndex}: ${delta}`);
}
const { status, steps = [], output } = await turn.result;
for (const { index, providerId, durationMs } of steps) console.log(`step ${index}: ${providerId}, ${durationMs} ms`);
console.log(`${status}: ${output}`);

await session.close();
trestle.close();
