import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { AgentEvent } from '../../src/bridge/agents/agent-provider.ts';
import { type AgentUnderTest, startAgent } from '../kit/bridge/agent-under-test.ts';
import type { Scope } from '../kit/running-program.ts';
import type { ScriptedModel } from '../kit/scripted-model.ts';
import { timeLimit } from '../kit/time.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, type RealAgent, type RealAgentId, realFolder, setUpAgent } from './real-agent.ts';

export interface KnownDifferences {
  readonly protocol: 'acp' | 'codex';
  /** Whether a conversation can be taken up by another process. */
  readonly continuesElsewhere: boolean;
  /** A model of the agent's choice, as the bridge is asked for it and as the model API sees it. */
  readonly otherModel: { readonly asked: string; readonly seen: string };
  /** What it does with a model that it does not know. */
  readonly unknownModel: 'passed on' | 'reported';
  /** What a whole turn of one model call says it used. */
  readonly usage: {
    readonly inputTokens: number;
    readonly outputTokens: number;
    readonly totalTokens: number;
    readonly costUsd?: number;
  };
}

const CANCEL_LIMIT_MS = 5_000;
/** How long the bridge waits for an agent that is to stop, before it uses force. */
const STOP_MS = 4_000;

/** What every agent must do, and each agent's known differences. */
export function describeAgent(id: RealAgentId, known: KnownDifferences): void {
  const wholeFile = newestFirst({ after });
  let model: ScriptedModel;
  let agent: RealAgent;
  let shared: AgentUnderTest;

  before(async () => {
    model = await startObedientModel();
    wholeFile.after(() => model.stop());
    agent = await setUpAgent(wholeFile, id, model.url);
    shared = await start(wholeFile);
  });

  async function start(scope: Scope, permissions: 'allow' | 'deny' = 'allow'): Promise<AgentUnderTest> {
    const folder = await realFolder(scope, `trestle-${id}-`);
    return startAgent(scope, agent, { protocol: known.protocol, permissions, folder });
  }

  agentTest(`${id}: a turn streams thoughts and text, and ends with the final text and its usage`, async (t) => {
    const turn = shared.run({ prompt: 'SAY alpha', folder: await realFolder(t, 'work-') });
    const end = await turn.end;
    assert.equal(end.kind, 'completed', JSON.stringify(end));
    if (end.kind !== 'completed') return;
    assert.match(end.output, /^Here is alpha from [\w.-]+\.$/);
    assert.equal(end.stopReason, 'end_turn');
    assert.deepEqual(end.usage, known.usage);
    assert.equal(turn.text(), end.output);
    assert.ok(countOf(turn.events, 'text') > 1, 'the text came in pieces');
    assert.ok(turn.events.some((event) => event.kind === 'thinking' && event.text.includes('told to say')));
  });

  agentTest(`${id}: a tool runs after its permission was granted, and both are seen`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const turn = shared.run({ prompt: 'RUN touch made && echo it-is-made', folder });
    const end = await turn.end;
    assert.equal(end.kind, 'completed', JSON.stringify(end));
    assert.ok(existsSync(join(folder, 'made')), 'the tool ran in the folder of the conversation');
    assert.match(end.kind === 'completed' ? end.output : '', /^It printed: .*it-is-made/s);
    const permission = turn.events.find((event) => event.kind === 'permission');
    assert.equal(permission?.decision, 'allowed');
    assert.match(permission?.title ?? '', /touch made && echo it-is-made/);
    const call = turn.events.findLast((event) => event.kind === 'tool_call');
    assert.deepEqual([call?.status, call?.toolKind], ['completed', 'execute']);
    assert.equal(call?.toolCallId, permission?.toolCallId);
  });

  agentTest(`${id}: a tool does not run when permissions are denied`, async (t) => {
    const denying = await start(t, 'deny');
    const folder = await realFolder(t, 'work-');
    const turn = denying.run({ prompt: 'RUN touch made', folder });
    await turn.end;
    assert.equal(existsSync(join(folder, 'made')), false);
    const permission = turn.events.find((event) => event.kind === 'permission');
    // An agent in its own read-only mode may not even ask.
    assert.notEqual(permission?.decision, 'allowed');
  });

  agentTest(`${id}: a cancelled turn ends soon, and the conversation goes on`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const turn = shared.run({ prompt: 'SAY one, then WAIT', folder });
    await turn.until((event) => event.kind === 'text');
    const before = performance.now();
    await shared.provider.cancel(turn.turnId);
    const end = await turn.end;
    const stoppedMs = performance.now() - before;
    assert.ok(stoppedMs < timeLimit(CANCEL_LIMIT_MS));
    assert.deepEqual([end.kind, end.kind === 'cancelled' && end.output], ['cancelled', 'I wait']);
    const next = shared.run({ prompt: 'SAY two', folder, reference: turn.reference() });
    assert.equal((await next.end).kind, 'completed');
    assert.equal(shared.started.length, stoppedMs < STOP_MS ? 1 : 2, 'force is used only after its time');
  });

  agentTest(`${id}: a later turn of the conversation knows the earlier ones`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const first = shared.run({ prompt: 'SAY alpha', folder });
    await first.end;
    await shared.run({ prompt: 'SAY beta', folder, reference: first.reference() }).end;
    const last = await shared.run({ prompt: 'RECALL', folder, reference: first.reference() }).end;
    assert.equal(last.kind === 'completed' && last.output, 'Said: alpha beta.');
  });

  agentTest(`${id}: two conversations at once in one process do not mix`, async (t) => {
    const words = ['red', 'blue'];
    const processes = shared.started.length;
    const outputs = await Promise.all(
      words.map(async (word) => {
        const folder = await realFolder(t, `${word}-`);
        const first = shared.run({ prompt: `SAY ${word}`, folder });
        await first.end;
        const tool = shared.run({ prompt: `RUN pwd > ${word}`, folder, reference: first.reference() });
        await tool.end;
        assert.deepEqual(readdirSync(folder), [word]);
        const end = await shared.run({ prompt: 'RECALL', folder, reference: first.reference() }).end;
        return end.kind === 'completed' ? end.output : JSON.stringify(end);
      }),
    );
    assert.deepEqual(outputs, ['Said: red.', 'Said: blue.']);
    assert.equal(shared.started.length, processes);
  });

  agentTest(`${id}: the model of a turn can be chosen`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const { asked, seen } = known.otherModel;
    const chosen = await shared.run({ prompt: 'SAY x', folder, model: asked }).end;
    assert.equal(chosen.kind === 'completed' && chosen.output, `Here is x from ${seen}.`);
    const turn = shared.run({ prompt: 'SAY x', folder, model: 'no-such-model' });
    const end = await turn.end;
    if (known.unknownModel === 'reported') {
      assert.match(end.kind === 'failed' ? end.error : '', /does not offer the model "no-such-model"/);
      return;
    }
    assert.equal(end.kind, 'completed', JSON.stringify(end));
    const isReported = turn.events.some((event) => event.kind === 'status' && event.text.includes('"no-such-model"'));
    assert.equal(isReported ? 'reported' : 'passed on', known.unknownModel);
    assert.equal(turn.text().includes('no-such-model'), known.unknownModel === 'passed on');
  });

  const elsewhere = known.continuesElsewhere ? 'goes on in another process' : 'is lost with its process, unasked';
  agentTest(`${id}: a conversation ${elsewhere}`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const first = await start(t);
    const turn = first.run({ prompt: 'SAY alpha', folder });
    await turn.end;
    await first.provider.stop();
    const second = await start(t);
    const end = await second.run({ prompt: 'RECALL', folder, reference: turn.reference() }).end;
    if (known.continuesElsewhere) assert.equal(end.kind === 'completed' && end.output, 'Said: alpha.');
    else assert.deepEqual([end.kind, second.started.length], ['lost', 0]);
  });

  agentTest(`${id}: a conversation that the agent never had is lost, and none is opened instead`, async (t) => {
    const folder = await realFolder(t, 'work-');
    const requests = model.requests.length;
    const reference = JSON.stringify({ conversation: '019a0000-0000-7000-8000-000000000000', folder, continues: true });
    const end = await shared.run({ prompt: 'SAY x', folder, reference }).end;
    assert.equal(end.kind, 'lost');
    assert.equal(model.requests.length, requests);
  });

  agentTest(`${id}: an agent that is killed ends its turn within a second, and is started anew`, async (t) => {
    const killed = await start(t);
    const folder = await realFolder(t, 'work-');
    const turn = killed.run({ prompt: 'SAY alpha, then WAIT', folder });
    await turn.until((event) => event.kind === 'text');
    const before = performance.now();
    process.kill(-(killed.started[0]?.pid ?? 0), 'SIGKILL');
    const end = await turn.end;
    assert.ok(performance.now() - before < timeLimit(1000));
    assert.equal(end.kind === 'failed' && end.code, 'AGENT_EXITED');
    const next = await killed.run({ prompt: 'SAY beta', folder }).end;
    assert.equal(next.kind, 'completed');
    assert.equal(killed.started.length, 2);
  });

  agentTest(`${id}: closing the last conversation ends the process`, async (t) => {
    const single = await start(t);
    const folder = await realFolder(t, 'work-');
    const turn = single.run({ prompt: 'SAY alpha, then WAIT', folder });
    await turn.until((event) => event.kind === 'text');
    // As sessions do it: whatever runs is cancelled before its conversation is closed.
    await single.provider.cancel(turn.turnId);
    await single.provider.close(turn.reference());
    assert.equal((await turn.end).kind, 'cancelled');
    assert.equal(single.living(), 0);
  });
}

function agentTest(name: string, run: (scope: Scope) => Promise<void>): void {
  test(name, (t) => run(newestFirst(t)));
}

function countOf(events: readonly AgentEvent[], kind: AgentEvent['kind']): number {
  return events.filter((event) => event.kind === kind).length;
}
