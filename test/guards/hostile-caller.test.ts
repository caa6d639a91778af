import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createResponseCache } from '../../src/completions/operations/response-cache.ts';
import type { ModelPlan, Target } from '../../src/completions/routing/model-plan.ts';
import { createTargetBoard, type TargetLease } from '../../src/completions/routing/target-board.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import fc from '../kit/properties.ts';

/**
 * What callers share, one of them could use against the others. A hostile caller does whatever it likes here; the calls
 * of a well-behaved one, which the upstream answers, must go as if it were alone.
 */

const timeouts = { connect: 5000, first_byte: 600_000, idle: 300_000, total: 3_600_000 };
const targetOf = (model: string, limits: Partial<Target> = {}): Target => ({
  id: `lab/${model}`,
  apiId: 'lab',
  model,
  weight: 1,
  priority: 1,
  requestsPerMinute: 0,
  tokensPerMinute: 0,
  timeouts,
  ...limits,
});

type Move =
  | {
      readonly kind: 'call';
      readonly model: string;
      readonly tokens: number;
      readonly end: 'failed' | 'ignored' | 'ok' | 'never';
    }
  | { readonly kind: 'wait'; readonly ms: number };

const anyMove: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.record({
      kind: fc.constant('call' as const),
      model: fc.constantFrom('a', 'b'),
      tokens: fc.nat(100),
      end: fc.constantFrom('failed', 'ignored', 'ok', 'never'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(20_000) }) },
);

/** Plays the moves of the hostile caller, and after each a call of the well-behaved one. */
async function play(moves: readonly Move[], limits: Partial<Target>, wellBehaved: (begin: () => boolean) => void) {
  const clock = createFakeClock();
  const board = createTargetBoard({ clock, onCircuit: () => undefined });
  const targets = new Map(['a', 'b'].map((model) => [model, targetOf(model, limits)]));
  const begin = (model: string, tokens: number, caller: string): TargetLease | undefined => {
    const target = targets.get(model);
    assert.ok(target !== undefined);
    const lease = board.begin(target, tokens, { caller, isSole: false });
    return lease.waitMs === undefined ? lease : undefined;
  };
  const asWellBehaved = () => {
    const lease = begin('a', 1, 'good');
    lease?.answered();
    lease?.end('ok', 1);
    return lease !== undefined;
  };
  // From here on the target has two callers.
  wellBehaved(asWellBehaved);
  for (const move of moves) {
    if (move.kind === 'wait') await clock.advance(move.ms);
    else {
      const lease = begin(move.model, move.tokens, 'hostile');
      if (move.end !== 'never') lease?.end(move.end, move.tokens);
    }
    wellBehaved(asWellBehaved);
  }
}

const anyMoves = fc.array(anyMove, { minLength: 20, maxLength: 120 });

test('DC-5: whatever a hostile caller does, the circuit of a target stays closed for a well-behaved one', async () => {
  await fc.assert(
    fc.asyncProperty(anyMoves, (moves) => play(moves, {}, (call) => assert.ok(call()))),
    { numRuns: 60 },
  );
});

test('DC-5: whatever a hostile caller does, half of the limits of a target is left for the others', async () => {
  const limits = { requestsPerMinute: 300, tokensPerMinute: 300 };
  await fc.assert(
    fc.asyncProperty(anyMoves, (moves) => play(moves, limits, (call) => assert.ok(call()))),
    { numRuns: 60 },
  );
});

test('DC-5: a hostile caller that never ends its calls gets a part of the connections only', () => {
  const board = createTargetBoard({ clock: createFakeClock(), onCircuit: () => undefined });
  let taken = 0;
  for (let count = 0; count < 10_000; count += 1) {
    const lease = board.begin(targetOf(`model-${count}`), 1, { caller: 'hostile', isSole: true });
    if (lease.waitMs === undefined) taken += 1;
  }
  assert.ok(taken <= 4096 / 2, String(taken));
  const plan: ModelPlan = {
    name: 'm',
    targets: [targetOf('a')],
    fallbacks: [],
    contextFallbacks: [],
    retries: 0,
    cacheTtlMs: 0,
  };
  assert.equal(board.begin(targetOf('a'), 1, { caller: 'good', isSole: false }).waitMs, undefined);
  assert.equal(board.order(plan).length, 1);
  // A third one, after a second that takes all it gets.
  for (let count = 0; count < 10_000; count += 1) board.begin(targetOf('a'), 1, { caller: 'greedy', isSole: true });
  assert.equal(board.begin(targetOf('a'), 1, { caller: 'late', isSole: false }).waitMs, undefined);
});

test('a caller alone has two thousand calls at one API at the same time, and room again for each that ends', () => {
  const board = createTargetBoard({ clock: createFakeClock(), onCircuit: () => undefined });
  const begin = (apiId: string) => board.begin({ ...targetOf('a'), apiId }, 1, { caller: 'app', isSole: true });
  const leases = Array.from({ length: 2_000 }, () => begin('one'));
  assert.ok(leases.every(({ waitMs }) => waitMs === undefined));
  while (begin('one').waitMs === undefined);
  assert.equal(begin('other').waitMs, undefined, 'each API has connections of its own');
  const [first] = leases;
  if (first?.waitMs === undefined) first?.end('ok', 0);
  assert.deepEqual([begin('one').waitMs, typeof begin('one').waitMs], [undefined, 'number']);
});

test('two callers with as many failures take a target out only if it fails without either of them, no matter which called first', () => {
  for (const order of [
    ['hostile', 'good'],
    ['good', 'hostile'],
  ]) {
    const board = createTargetBoard({ clock: createFakeClock(), onCircuit: () => undefined });
    const target = targetOf('a');
    const end = (caller: string, result: 'ok' | 'failed', times: number) => {
      for (let count = 0; count < times; count += 1) {
        const lease = board.begin(target, 1, { caller, isSole: false });
        if (lease.waitMs === undefined) lease.end(result, 0);
      }
    };
    for (const caller of order) end(caller, 'ok', caller === 'good' ? 3 : 1);
    for (const caller of order) end(caller, 'failed', 3);
    assert.ok(!board.isOut(target), 'half of the calls of the well-behaved caller are answered');
    for (const caller of order) end(caller, 'failed', 1);
    assert.ok(board.isOut(target));
  }
});

test('DC-5: a probe that a hostile caller never ends does not keep a target out', async () => {
  const clock = createFakeClock();
  const board = createTargetBoard({ clock, onCircuit: () => undefined });
  const target = targetOf('a');
  const begin = (caller: string) => {
    const lease = board.begin(target, 1, { caller, isSole: false });
    return lease.waitMs === undefined ? lease : undefined;
  };
  for (let count = 0; count < 10; count += 1) begin(count % 2 === 0 ? 'good' : 'hostile')?.end('failed', 0);
  assert.equal(begin('good'), undefined, 'it is out');
  await clock.advance(30_000);
  const probe = begin('hostile');
  assert.ok(probe !== undefined);
  probe.answered();
  assert.ok(begin('good') !== undefined, 'a probe that is being answered brings the target back');
  for (let count = 0; count < 10; count += 1) begin(count % 2 === 0 ? 'good' : 'hostile')?.end('failed', 0);
  await clock.advance(30_000);
  assert.ok(begin('hostile') !== undefined, 'a probe that is never answered');
  await clock.advance(30_000);
  assert.ok(begin('good') !== undefined, 'makes way for the next');
});

test('DC-5: whatever a hostile caller caches, the answers of a well-behaved one stay', () => {
  fc.assert(
    fc.property(fc.array(fc.record({ key: fc.nat(500), bytes: fc.nat(4000) }), { maxLength: 200 }), (puts) => {
      const cache = createResponseCache({ clock: createFakeClock(), maxBytes: 20_000, maxEntryBytes: 5000 });
      for (const key of ['one', 'two', 'three']) cache.put('good', key, Buffer.alloc(1000), 60_000);
      for (const { key, bytes } of puts) cache.put('hostile', `h${key}`, Buffer.alloc(bytes), 60_000);
      for (const key of ['one', 'two', 'three']) assert.notEqual(cache.get(key), undefined);
    }),
  );
});
