import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, figuresOf, type TurnOperation } from '../../faults/forwarding/check-operations.ts';

const told = (outcome: TurnOperation['outcome'], ms = 5): TurnOperation => ({
  prompt: 'p',
  session: 's',
  method: 'session.start',
  transport: 'http',
  outcome,
  ms,
});
const ran = (node: string, prompt = 'p') => ({ node, session: 's', prompt });

for (const [what, operations, found, count] of [
  ['an answer and one run', [told('ok')], [ran('b')], 0],
  ['an answer without a run', [told('ok')], [], 1],
  ['a refusal and a run', [told('not_started')], [ran('b')], 1],
  ['an unknown outcome, run or not', [told('unknown')], [ran('b')], 0],
  ['one call that ran twice', [told('unknown')], [ran('b'), ran('b')], 1],
  ['a session on two nodes', [told('ok')], [ran('b'), ran('c', 'other')], 1],
  ['an answer that came too late', [told('refused', 101)], [], 1],
] as const) {
  test(`faults: the checker finds ${count} wrong with ${what}`, () => {
    assert.equal(checkOperations(operations, found, 100).length, count);
  });
}

test('faults: the figures tell what was lost, run twice or spread over two nodes', () => {
  const lost = { ...told('ok'), prompt: 'lost' };
  const found = [ran('b'), ran('c')];
  const missed = figuresOf([told('ok'), lost, told('not_started', 6000)], found, 100).filter(({ met }) => !met);
  assert.deepEqual(
    missed.map(({ name, value }) => [name, value]),
    [
      ['answered turns lost', '1'],
      ['turns run twice', '1'],
      ['sessions on two nodes', '1'],
      ['told that nothing was started, after at most', '6,000 ms'],
      ['any answer, after at most', '6,000 ms'],
    ],
  );
});
