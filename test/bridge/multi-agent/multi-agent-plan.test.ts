import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fillTemplate, readPlan } from '../../../src/bridge/multi-agent/multi-agent-plan.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import fc from '../../kit/properties.ts';

const KNOWN = ['builtin', 'codex'];

test('a sequence is the mode without one; steps take the task, five minutes and the model of the routing', () => {
  const plan = readPlan({ explicitModel: 'big', steps: [{ providerId: 'codex' }] }, 'the task', KNOWN);
  assert.deepEqual(plan, {
    mode: 'sequence',
    input: 'the task',
    steps: [{ providerId: 'codex', prompt: 'the task', outputAs: '', timeoutMs: 300_000, model: 'big' }],
    maxTurns: 1,
    stopConditions: ['status: done', 'status: consensus'],
  });
});

test('a conversation takes participants as names or as steps, else the steps, and lasts one round', () => {
  const routing = {
    orchestrationMode: 'conversation',
    participants: ['codex', { providerId: 'builtin', prompt: 'b' }],
  };
  const { steps, maxTurns } = readPlan(routing, 'task', KNOWN);
  assert.deepEqual(
    steps.map(({ providerId, prompt }) => [providerId, prompt]),
    [
      ['codex', 'task'],
      ['builtin', 'b'],
    ],
  );
  assert.equal(maxTurns, 2);
  const byStep = readPlan(
    { orchestrationMode: 'conversation', steps: [{ providerId: 'codex' }], maxTurns: 7 },
    't',
    KNOWN,
  );
  assert.equal(byStep.maxTurns, 7);
});

for (const [routing, task, code] of [
  [{ orchestrationMode: 'tournament', steps: [{ providerId: 'codex' }] }, 'task', 'MULTI_AGENT_INVALID_MODE'],
  [{}, 'task', 'MULTI_AGENT_STEPS_REQUIRED'],
  [{ orchestrationMode: 'conversation', participants: [] }, 'task', 'MULTI_AGENT_STEPS_REQUIRED'],
  [{ steps: [{ prompt: 'x' }] }, 'task', 'MULTI_AGENT_PROVIDER_REQUIRED'],
  [{ steps: [{ providerId: 'nobody' }] }, 'task', 'PROVIDER_UNKNOWN'],
  [{ steps: [{ providerId: 'codex', prompt: '  ' }] }, ' ', 'MULTI_AGENT_PROMPT_REQUIRED'],
] as const) {
  test(`a run that cannot be run is refused: ${JSON.stringify(routing)} is ${code}`, () => {
    const given = structuredClone(routing) as Parameters<typeof readPlan>[0];
    assert.throws(
      () => readPlan(given, task, KNOWN),
      (error) => error instanceof AppError && error.code === code,
    );
  });
}

test('a template is filled with values, white space inside the braces does not matter, unknown names stay', () => {
  const values = new Map([
    ['input', 'the task'],
    ['previousOutput', 'done'],
  ]);
  assert.equal(
    fillTemplate('{{input}}: {{ previousOutput }}, {{nobody}} {input}', values),
    'the task: done, {{nobody}} {input}',
  );
});

test('B-65: what an agent said is never a template, whatever it says', () => {
  const piece = fc.oneof(
    fc.string(),
    fc.constantFrom('{{input}}', '{{secret}}', '{{', '}}', '{{previousOutput}}', '$&', '$1'),
  );
  fc.assert(
    fc.property(fc.array(piece), (pieces) => {
      const said = pieces.join('');
      const values = new Map([
        ['previousOutput', said],
        ['input', 'TASK'],
        ['secret', 'SECRET'],
      ]);
      assert.equal(fillTemplate('<{{previousOutput}}>', values), `<${said}>`);
    }),
  );
});
