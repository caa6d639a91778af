import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type {
  AgentProvider,
  AgentTurn,
  PermissionQuestion,
  SupervisedTurn,
} from '../../../../src/bridge/agents/agent-provider.ts';
import { createAskAgent, createRequests } from '../../../../src/bridge/agents/builtin/ask-agent.ts';
import type { BuiltinAgentOptions } from '../../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { createFairGate } from '../../../../src/bridge/sessions/turn-limits.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import type { AppError } from '../../../../src/platform/errors/app-error.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { inTime } from '../../../kit/in-time.ts';
import { isAlive } from '../../../kit/processes.ts';
import type { ScriptedAnswer } from '../../../kit/scripted-answers.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

type Request = Parameters<Parameters<typeof scriptedAgent>[0]>[1];

/** What the user of a conversation said last, and how many results of tools came after it. */
function place({ messages }: Request): { readonly said: string; readonly results: readonly string[] } {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  return { said: String(messages[at]?.content), results: messages.slice(at + 1).flatMap(resultText) };
}

const resultText = ({ role, content }: Request['messages'][number]) => (role === 'tool' ? [String(content)] : []);

const asking = (...prompts: readonly string[]): ScriptedAnswer => ({
  calls: prompts.map((prompt, index) => ({ name: 'ask_agent', input: { prompt }, id: `ask_${index}` })),
});

/** Another agent, which does what the test says. */
function otherAgent(run: AgentProvider['run']) {
  const closed: string[] = [];
  const turns: AgentTurn[] = [];
  const provider: AgentProvider = {
    id: 'other',
    probe: async () => ({ status: 'ok', version: '1', model: '' }),
    run(turn, signal) {
      turns.push(turn);
      turn.opened('other-1');
      return run(turn, signal);
    },
    close: async (reference) => void closed.push(reference),
    stop: async () => undefined,
  };
  return { provider, closed, turns };
}

/** The built-in agent, which may ask itself and others. */
function setUp(
  t: TestContext,
  answer: (request: Request) => ScriptedAnswer,
  others: readonly AgentProvider[] = [],
  more: Partial<BuiltinAgentOptions> = {},
) {
  const providers = new Map<string, AgentProvider>();
  const gate = createFairGate(1, () => 1);
  const made = scriptedAgent((_index, request) => answer(request), {
    agentsToAsk: () => ({ providers, placesOf: () => gate }),
    ...more,
  });
  for (const one of [made.agent, ...others]) providers.set(one.id, one);
  t.after(() => made.agent.stop());
  return { ...made, gate };
}

const namesOf = (request: Request | undefined) => request?.tools?.map((tool) => tool.function.name) ?? [];

test('ask itself twice at the same time, count all that was used, and leave no conversation behind', async (t) => {
  const root = await workingDirectory(t);
  let open = 0;
  const both = Promise.withResolvers<void>();
  const { agent, store, requests } = setUp(
    t,
    (request) => {
      const { said, results } = place(request);
      if (said === 'All') return results.length === 0 ? asking('One', 'Two') : { text: [results.join(' and ')] };
      if (results.length > 0) return { text: [`did ${said}`] };
      return { calls: [{ name: 'wait__both', input: {} }] };
    },
    [],
    {
      mcp: {
        async find() {
          return { tools: [bothRun], problems: [], release: () => undefined };
        },
        endWhere: () => undefined,
        stop: async () => undefined,
      },
    },
  );
  const bothRun = {
    name: 'wait__both',
    description: 'Waits until both run',
    parameters: {},
    toolKind: 'read' as const,
    needsPermission: false,
    title: () => 'Wait',
    async run() {
      open += 1;
      if (open === 2) both.resolve();
      await both.promise;
      return { text: 'both run' };
    },
  };
  const turn = recordTurn(root, 'All');
  const end = await agent.startTurn(turn);
  const usage = { inputTokens: 60, outputTokens: 30, totalTokens: 90 };
  assert.deepEqual(end, { kind: 'completed', output: 'did One and did Two', stopReason: 'end_turn', usage });
  assert.equal(turn.text(), 'did One and did Two');
  const inner = turn.toolCalls().filter(({ title }) => title === 'builtin: Wait');
  assert.equal(new Set(inner.map(({ toolCallId }) => toolCallId)).size, 2);
  await until('their conversations to be gone', () => store.rows.size === 1);
  const depths = requests.map((request) => [place(request).said, namesOf(request).includes('ask_agent')].join());
  assert.deepEqual(new Set(depths), new Set(['All,true', 'One,false', 'Two,false']));
});

test('ask another agent with the rights of the turn, and give its answer, usage and cost', async (t) => {
  const root = await workingDirectory(t);
  const usage = { inputTokens: 1, outputTokens: 2, costUsd: 0.25 };
  const other = otherAgent(async (turn, signal) => {
    const question: PermissionQuestion = { toolCallId: 'x', title: 'Write', toolKind: 'edit', options: [] };
    await turn.permit(question, 'allow', signal);
    turn.report({ kind: 'text', text: `done: ${turn.prompt}` });
    return { kind: 'completed', stopReason: 'end_turn', usage };
  });
  const { agent } = setUp(
    t,
    (request) =>
      place(request).results.length === 0
        ? { calls: [{ name: 'ask_agent', input: { agent: 'other', prompt: 'Part' } }], costNano: 1e9 }
        : { text: place(request).results, costNano: 5e8 },
    [other.provider],
  );
  const questions: string[] = [];
  const turn = recordTurn(root, 'All', {
    owner: 'team:team_a',
    member: 'user:usr_1',
    hop: 2,
    skills: ['s'],
    async ask({ title, toolCallId, options }) {
      questions.push(`${toolCallId.split(':').at(-1)} ${title}`);
      return { optionId: options.find(({ kind }) => kind === 'allow_once')?.optionId };
    },
  });
  const end = await agent.startTurn(turn);
  assert.deepEqual(end.kind === 'completed' && [end.output, end.usage], [
    'done: Part',
    { inputTokens: 21, outputTokens: 12, totalTokens: 33, costUsd: 1.75 },
  ]);
  const [asked] = other.turns;
  const { owner, member, hop, skills, workingDirectory: folder } = asked ?? {};
  assert.deepEqual([owner, member, hop, skills, folder], ['team:team_a', 'user:usr_1', 2, ['s'], root]);
  assert.match(questions.join(), /^tool-\S+ Ask other: Part,x other: Write$/);
  assert.deepEqual(other.closed, ['other-1']);
});

test('stop the agent that was asked with the turn, and what it runs', async (t) => {
  const root = await workingDirectory(t);
  const { agent } = setUp(t, (request) =>
    place(request).said === 'All'
      ? asking('Part')
      : { calls: [{ name: 'run_command', input: { command: 'sh', args: ['-c', 'echo $$ > pid; sleep 600'] } }] },
  );
  const turn = recordTurn(root, 'All');
  const ended = agent.startTurn(turn);
  const pid = await until('the command to run', async () => {
    const text = await readFile(join(root, 'pid'), 'utf8').catch(() => '');
    return text.endsWith('\n') && Number(text);
  });
  await agent.cancel(turn.turnId);
  assert.equal((await ended).kind, 'cancelled');
  assert.equal(isAlive(pid), false);
});

test('end what an agent that was asked left in the background', async (t) => {
  const root = await workingDirectory(t);
  const script = 'echo $$ > pid; exec sleep 600';
  const { agent } = setUp(
    t,
    (request) => {
      const { said, results } = place(request);
      if (said === 'All') return results.length === 0 ? asking('Part') : { text: ['done'] };
      if (results.length > 0) return { calls: [{ name: 'run_command', input: { command: 'sh', args: ['-c', WAIT] } }] };
      return { calls: [{ name: 'start_command', input: { command: 'sh', args: ['-c', script] } }] };
    },
    [],
    { maxRequests: 6 },
  );
  await agent.startTurn(recordTurn(root, 'All'));
  const pid = Number(await readFile(join(root, 'pid'), 'utf8'));
  await until('the command to be gone', () => !isAlive(pid));
});

const WAIT = 'while [ ! -s pid ]; do sleep 0.02; done';

test('share the requests of the turn with those that it asks, and keep one for its own answer', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = setUp(
    t,
    (request) => {
      const { said, results } = place(request);
      if (said === 'All') return results.length === 0 ? asking('Part') : { text: [`got ${results}`] };
      return { calls: [{ name: 'list_files', input: {} }] };
    },
    [],
    { maxRequests: 5 },
  );
  const end = await agent.startTurn(recordTurn(root, 'All'));
  assert.equal(requests.length, 5);
  assert.match(end.kind === 'completed' ? end.output : '', /^got I stopped after 5 requests/);
});

test('refuse an unknown agent, and the ninth that is asked', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = setUp(
    t,
    (request) => {
      const { said, results } = place(request);
      if (said !== 'All') return { text: ['ok'] };
      if (results.length === 0) return { calls: [{ name: 'ask_agent', input: { agent: 'nobody', prompt: 'x' } }] };
      return results.length === 1
        ? asking(...Array.from({ length: 9 }, (_, index) => `Part ${index}`))
        : { text: ['done'] };
    },
    [],
    { maxRequests: 50 },
  );
  await agent.startTurn(recordTurn(root, 'All'));
  const results = requests.at(-1)?.messages.flatMap(resultText) ?? [];
  assert.equal(results[0], 'Error: There is no agent "nobody". There are: builtin.');
  assert.deepEqual(results.slice(1, 9), Array(8).fill('ok'));
  assert.match(results[9] ?? '', /^Error: This turn has asked 8 times already/);
});

test('wait for a place at another agent, and stop waiting with the turn', async (t) => {
  const root = await workingDirectory(t);
  const other = otherAgent(async () => ({ kind: 'completed', stopReason: 'end_turn' }));
  const answer = (request: Request) =>
    place(request).results.length === 0
      ? { calls: [{ name: 'ask_agent', input: { agent: 'other', prompt: 'Part' } }] }
      : { text: ['done'] };
  const { agent, gate } = setUp(t, answer, [other.provider]);
  assert.equal(gate.tryEnter('somebody'), true);
  const turn = recordTurn(root, 'All');
  const ended = agent.startTurn(turn);
  await turn.when((event) => event.kind === 'tool_call' && event.status === 'in_progress');
  await agent.cancel(turn.turnId);
  assert.equal((await ended).kind, 'cancelled');
  assert.equal(other.turns.length, 0);
  gate.leave('somebody');
  await agent.startTurn(recordTurn(root, 'All'));
  assert.equal(other.turns.length, 1);
  assert.equal(gate.hasRoom('somebody'), true, 'the place was given back');
});

test('give the failure of an agent to the model, and offer nobody in a turn that only reads', async (t) => {
  const root = await workingDirectory(t);
  const other = otherAgent(async () => ({ kind: 'failed', code: 'AGENT_FAILED', error: 'it broke' }));
  const { agent, requests } = setUp(
    t,
    (request) =>
      place(request).results.length === 0
        ? { calls: [{ name: 'ask_agent', input: { agent: 'other', prompt: 'Part' } }] }
        : { text: ['done'] },
    [other.provider],
  );
  await agent.startTurn(recordTurn(root, 'All'));
  assert.deepEqual(requests.at(-1)?.messages.flatMap(resultText), ['[failed: it broke]\n']);
  await agent.startTurn(recordTurn(root, 'All', { isReadOnly: true }));
  assert.equal(namesOf(requests.at(-1)).includes('ask_agent'), false);
  assert.equal(other.turns.length, 1);
});

/** Turns of agents with one place each, which ask other agents as with the tools of this program. */
function askingTurns(agents: readonly string[], placesOfOne = 1) {
  const gates = new Map(agents.map((id) => [id, createFairGate(1, () => placesOfOne)]));
  const gateOf = (id: string) => gates.get(id) ?? createFairGate(9, () => 9);
  const provider = (id: string): AgentProvider => ({
    id,
    probe: async () => ({ status: 'ok', version: '1', model: '' }),
    run: async () => ({ kind: 'completed', output: `${id} did it`, stopReason: 'end_turn' }),
    close: async () => undefined,
    stop: async () => undefined,
  });
  const providers = new Map(agents.map((id) => [id, provider(id)]));
  const begin = (id: string) => {
    assert.ok(gateOf(id).tryEnter('main'), 'the turn has its own place');
    const askAgent = createAskAgent({
      turn: recordTurn('/tmp', 'work') as unknown as SupervisedTurn,
      agent: id,
      model: '',
      agents: { providers, placesOf: gateOf },
      requests: createRequests(99),
      clock: systemClock,
      keep: () => undefined,
      used: () => undefined,
    });
    const stop = new AbortController();
    const ask = (agent: string) =>
      askAgent(agent, 'do it', stop.signal).then(
        ({ text }) => text,
        (error: AppError) => String(error.details.reason),
      );
    return { ask, stop, end: () => gateOf(id).leave('main') };
  };
  return { begin };
}

const NO_PLACE = /^All places at "\w" are held by turns that wait for other agents/;

test('turns that hold all places do not wait for each other’s: the last one is refused, and the others go on', async () => {
  const { begin } = askingTurns(['a', 'b', 'c']);
  const [a, b, c] = [begin('a'), begin('b'), begin('c')];
  const first = a.ask('b');
  const second = b.ask('c');
  assert.match(await inTime('the refusal', c.ask('a'), 2000), NO_PLACE);
  c.end();
  assert.equal(await inTime('the second', second, 2000), 'c did it');
  b.end();
  assert.equal(await inTime('the first', first, 2000), 'b did it');
});

test('a turn that would wait for its own place is refused, and may ask others', async () => {
  const { begin } = askingTurns(['a', 'b']);
  const a = begin('a');
  assert.match(await inTime('the refusal', a.ask('a'), 2000), NO_PLACE);
  assert.equal(await inTime('the other', a.ask('b'), 2000), 'b did it');
});

test('a turn waits for a place that another turn gives back, also beside a question of its own that is answered', async () => {
  const { begin } = askingTurns(['a', 'b']);
  const [a, b] = [begin('a'), begin('b')];
  const asked = [a.ask('b'), a.ask('b'), a.ask('b')];
  b.end();
  assert.deepEqual(await inTime('all', Promise.all(asked), 2000), ['b did it', 'b did it', 'b did it']);
  a.end();
  const again = begin('a');
  assert.equal(await inTime('what waits for nothing', again.ask('b'), 2000), 'b did it');
});
