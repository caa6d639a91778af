// A session with an agent, streamed as it works.   node examples/session.ts [url]
// In your own app: import { createTrestleClient } from 'trestle/client';
import { createTrestleClient } from '../src/client/trestle-client.ts';

const [url = 'http://127.0.0.1:8787'] = process.argv.slice(2);
const { BRIDGE_AUTH_TOKEN: token = '' } = process.env;
const trestle = createTrestleClient({ url, token });

const { providerCatalog } = await trestle.capabilities();
const agents = providerCatalog.filter(({ enabled }) => enabled).map(({ label }) => label);
console.log(`Agents: ${agents.join(', ')}`);

// The client reconnects by itself: each update arrives once, and no turn runs twice.
const session = trestle.session(`example-${Date.now()}`);
const turn = session.start('Hello from an app');
for await (const { type, delta, structuredEvent } of turn) {
  if (type === 'delta') process.stdout.write(delta ?? '');
  else if (structuredEvent?.kind === 'tool_call') console.log(`[${structuredEvent.title}: ${structuredEvent.status}]`);
}
const { status, resolvedProviderId } = await turn.result;
console.log(`\n${resolvedProviderId} ${status}`);

const { output } = await session.message('And once more').result;
console.log(output);

await session.close();
trestle.close();
