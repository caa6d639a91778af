import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Rates } from '../../../src/completions/apis/prices.ts';
import type { KeyHolder, SettledCall } from '../../../src/completions/keys/admission.ts';
import type { StoredObject } from '../../../src/completions/lanes/upstream-objects.ts';
import { createBatchCharges } from '../../../src/completions/operations/batch-file.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';

const HOLDER = { id: 'key_1', owner: 'main' } as KeyHolder;
const PLAN = {
  endpoint: '/v1/chat/completions',
  model: 'small',
  upstreamModel: 'small',
  promptTokens: 100,
  answerTokens: 100,
  lines: 1,
};
const ENDED = { status: 'completed', usage: { input_tokens: 10, output_tokens: 20, total_tokens: 30 } };

/** A batch in a store that loses the answer to the first attempt to take its estimate. */
function openBatch(isStored: boolean) {
  const corrected: SettledCall[] = [];
  const objects = {
    losing: true,
    async takeDetail({ detail }: StoredObject) {
      const isTaken = kept.detail === detail;
      if (!objects.losing || isStored) kept.detail = '';
      if (!objects.losing) return isTaken;
      objects.losing = false;
      throw new AppError('STORAGE_UNAVAILABLE');
    },
  };
  const meter = {
    priceOf: () => ({ known: false, knowsSearch: false, rates: {} as Rates }),
    chargesOf: () => [],
    correct: (call: SettledCall) => void corrected.push(call),
  };
  const charges = createBatchCharges(meter, objects);
  const detail = charges.detailOf({ holder: HOLDER, plan: PLAN, api: 'lab', requestId: 'r' });
  const kept: StoredObject & { detail: string } = { id: 'batch_1', kind: 'batch', place: 'lab', detail };
  return { corrected, correct: () => charges.correct({ ...kept }, HOLDER, ENDED) };
}

for (const isStored of [true, false]) {
  test(`an estimate that the store ${isStored ? 'gave without an answer' : 'did not give'} is corrected by the next look, once`, async () => {
    const { corrected, correct } = openBatch(isStored);
    await assert.rejects(correct(), { code: 'STORAGE_UNAVAILABLE' });
    assert.equal(corrected.length, 0);
    await Promise.all([correct(), correct()]);
    await correct();
    assert.deepEqual(
      corrected.map(({ promptTokens, completionTokens }) => [promptTokens, completionTokens]),
      [[-90, -80]],
    );
  });
}
