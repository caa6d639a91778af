import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { createRemoteAgent } from '../../../../src/bridge/agents/remote/create-remote-agent.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import { makeId } from '../../../kit/bridge/builtin-agent.ts';
import { call } from '../../../kit/bridge/session-client.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { silentLogger } from '../../../kit/silent-logger.ts';

/** An address that can be given to a bridge before the bridge behind it exists. Counts the turns that go through. */
async function startLane(context: TestContext) {
  let target = 0;
  let turns = 0;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const further = connect(target, '127.0.0.1');
    socket.on('data', (bytes) => {
      turns += String(bytes).split('"method":"session.').length - 1;
    });
    for (const end of [socket, further]) {
      sockets.add(end);
      end.on('error', () => undefined);
    }
    socket.pipe(further).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    turns: () => turns,
    leadTo(url: string) {
      target = Number(new URL(url).port);
    },
  };
}

/** An agent on another bridge. Its probe succeeds, as where the other bridge has a further agent that works. */
const remote = (url: string) => ({
  ...createRemoteAgent({
    id: 'far',
    url,
    token: '',
    clock: systemClock,
    randomness: systemRandomness,
    makeId,
    logger: silentLogger,
    isScratchFolder: () => true,
    hopLimit: 3,
    limits: { pauseMs: 5, longestPauseMs: 50 },
  }),
  probe: async () => ({ status: 'ok', version: '' }),
});

const FORWARDS = ', forwarding: { rules: [{ methods: ["*"], target: { node_id: b } }] }';

for (const { name, forwarding = '', more = {} } of [
  { name: 'bridges whose agents are each other' },
  { name: 'bridges one of which forwards to the other', forwarding: FORWARDS },
  {
    name: 'bridges in a multi-agent run',
    more: { multiAgent: true, routing: { steps: [{ providerId: 'far' }, { providerId: 'far' }] } },
  },
]) {
  test(`DB-31: ${name} end a call at the hop limit`, async (context) => {
    const [toFirst, toSecond] = [await startLane(context), await startLane(context)];
    const group = (id: string, other: string, url: string, rest: string) =>
      `distributed: { local_node_id: ${id}, nodes: [{ id: ${other}, bridge_endpoint: "${url}" }]${rest} }\n`;
    const first = await startBridge(context, {
      providers: [remote(toSecond.url)],
      settings: group('a', 'b', toSecond.url, forwarding),
    });
    toFirst.leadTo(first.url);
    const second = await startBridge(context, {
      providers: [remote(toFirst.url)],
      settings: group('b', 'a', toFirst.url, ''),
    });
    toSecond.leadTo(second.url);
    const answer = await call(first.url, 'session.start', { sessionId: 's', taskPrompt: 'round', ...more });
    assert.match(JSON.stringify(answer), /hop_limit is 3/);
    assert.notEqual(answer.result?.success, true);
    const turns = toFirst.turns() + toSecond.turns();
    assert.ok(turns > 0 && turns <= 3, `${toFirst.turns()} and ${toSecond.turns()} turns`);
  });
}
