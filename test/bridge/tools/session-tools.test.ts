import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import type { AgentProvider, AgentTurn } from '../../../src/bridge/agents/agent-provider.ts';
import { principalOf } from '../../../src/bridge/principal.ts';
import { createSessionTools } from '../../../src/bridge/tool-bridge/session-tools.ts';
import { systemClock as clock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness as randomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { supervised } from '../../kit/bridge/supervised.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import { silentLogger as logger } from '../../kit/silent-logger.ts';

const LIST = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} });

test('in the sandbox the token of a session opens its tools in the network of its payer only', async (t) => {
  const tools = createSessionTools({
    clock,
    randomness,
    makeId: createSortableIds(clock, randomness),
    logger,
    version: '0.0.0',
    permissions: 'allow',
    isFenced: () => true,
    isScratch: () => false,
    agentsToAsk: () => ({ providers: new Map(), placesOf: () => assert.fail('nobody is asked') }),
    complete: () => assert.fail('no model is asked'),
    model: '',
    principalFor: async (owner) => principalOf(owner),
    methods: () => [],
  });
  t.after(() => tools.stop());
  let network = '';
  const entrance = await listenOnLoopback(createServer((asked, response) => tools.serve(network, asked, response)));
  t.after(() => entrance.close());
  const statuses: Record<string, number> = {};
  const agent: AgentProvider = {
    id: 'agent',
    probe: async () => ({ status: 'ok', version: '' }),
    async run({ mcpServers = [] }) {
      const [server] = mcpServers;
      assert.ok(server?.type === 'http');
      assert.equal(server.url, 'http://127.0.0.1:47113/tools');
      for (const payer of ['user:ann', 'user:bob', 'main']) {
        network = payer;
        const headers = {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          authorization: server.headers[0]?.value ?? '',
        };
        const response = await fetch(entrance.url, { method: 'POST', headers, body: LIST });
        await response.text();
        statuses[payer] = response.status;
      }
      return { kind: 'completed', stopReason: 'end_turn' };
    },
    close: async () => undefined,
    stop: async () => undefined,
  };
  const turn: AgentTurn = {
    turnId: 'turn',
    owner: 'user:ann',
    prompt: '',
    workingDirectory: '/',
    model: '',
    mcpServers: [{ type: 'trestle', name: 'trestle' }],
    skills: [],
    hop: 0,
    opened: () => undefined,
    usedModel: () => undefined,
    leftBehind: () => undefined,
    report: () => undefined,
  };
  const end = await supervised(tools.wrap(agent)).startTurn(turn);
  assert.equal(end.kind, 'completed', JSON.stringify(end));
  assert.deepEqual(statuses, { 'user:ann': 200, 'user:bob': 401, main: 401 });
});

test('a turn that ends late does not take the tools from the next turn of its session', async (t) => {
  const tools = createSessionTools({
    clock,
    randomness,
    makeId: createSortableIds(clock, randomness),
    logger,
    version: '0.0.0',
    permissions: 'allow',
    isFenced: () => false,
    isScratch: () => false,
    agentsToAsk: () => ({ providers: new Map(), placesOf: () => assert.fail('nobody is asked') }),
    complete: () => assert.fail('no model is asked'),
    model: '',
    principalFor: async (owner) => principalOf(owner),
    methods: () => [],
  });
  t.after(() => tools.stop());
  const first = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  let answer = '';
  const agent: AgentProvider = {
    id: 'agent',
    probe: async () => ({ status: 'ok', version: '' }),
    async run({ reference, opened, mcpServers = [] }) {
      if (reference === undefined) {
        opened('conversation');
        begun.resolve();
        await first.promise;
        return { kind: 'completed', stopReason: 'end_turn', output: 'late' };
      }
      first.resolve();
      await late;
      const [server] = mcpServers;
      assert.ok(server?.type === 'http');
      const headers = {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: server.headers[0]?.value ?? '',
      };
      const params = { name: 'get_job', arguments: { job_id: 'job-1' } };
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
      answer = await (await fetch(server.url, { method: 'POST', headers, body })).text();
      return { kind: 'completed', stopReason: 'end_turn', output: 'done' };
    },
    close: async () => undefined,
    stop: async () => undefined,
  };
  const turn: AgentTurn = {
    turnId: 'first',
    owner: 'user:ann',
    prompt: '',
    workingDirectory: '/',
    model: '',
    mcpServers: [{ type: 'trestle', name: 'trestle' }],
    skills: [],
    hop: 0,
    opened: () => undefined,
    usedModel: () => undefined,
    leftBehind: () => undefined,
    report: () => undefined,
  };
  const provider = supervised(tools.wrap(agent));
  const late = provider.startTurn(turn);
  await begun.promise;
  await provider.continueTurn('conversation', { ...turn, turnId: 'second' });
  assert.match(answer, /app\.jobs\.get/);
  assert.doesNotMatch(answer, /no turn of this session is running/);
});
