import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { backoffDelay, type RetryOptions, retry } from '../../../src/platform/retry/retry.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createFakeRandomness } from '../../kit/fake-randomness.ts';
import fc from '../../kit/properties.ts';

const longest = { below: (limit: number) => limit - 1 };

function prepare(overrides: Partial<RetryOptions> = {}) {
  const clock = createFakeClock();
  const options = { attempts: 4, baseMs: 100, maxMs: 250, clock, randomness: longest, ...overrides };
  const starts: number[] = [];
  const failing = async (): Promise<never> => {
    starts.push(clock.monotonic());
    throw new Error(`attempt ${starts.length}`);
  };
  return { clock, options, starts, failing };
}

test('an attempt that succeeds is the answer, and no timer is left', async () => {
  const { clock, options } = prepare();
  assert.equal(await retry(async (number) => `attempt ${number}`, options), 'attempt 1');
  assert.equal(clock.pending(), 0);
});

test('failed attempts are repeated after pauses that double up to the bound, and the last error is thrown', async () => {
  const { clock, options, starts, failing } = prepare();
  const outcome = assert.rejects(retry(failing, options), /attempt 4/);
  await clock.advance(10_000);
  await outcome;
  assert.deepEqual(starts, [0, 100, 300, 550]);
  assert.equal(clock.pending(), 0);
});

test('every pause lies between nothing and the bound, and the pauses spread over that range', () => {
  const inputs = fc.record({ attempt: fc.integer({ min: 1, max: 2000 }), baseMs: fc.nat(5000), maxMs: fc.nat(60_000) });
  fc.assert(
    fc.property(inputs, fc.nat(), ({ attempt, baseMs, maxMs }, seed) => {
      const delay = backoffDelay(attempt, { baseMs, maxMs }, createFakeRandomness(seed));
      assert.ok(Number.isInteger(delay) && delay >= 0);
      assert.ok(delay <= Math.min(maxMs, baseMs * 2 ** Math.min(attempt - 1, 1000)));
    }),
  );
  const delays = Array.from({ length: 300 }, () => backoffDelay(5, { baseMs: 10, maxMs: 100 }, systemRandomness));
  assert.ok(Math.min(...delays) < 20 && Math.max(...delays) > 80);
});

test('an error that will not get better is thrown immediately', async () => {
  const { options, starts, failing } = prepare({ shouldRetry: (error) => !String(error).includes('attempt 1') });
  await assert.rejects(retry(failing, options), /attempt 1/);
  assert.equal(starts.length, 1);
});

test('a pause that the other side asked for is kept, and one that is too long ends the attempts', async () => {
  const patient = prepare({ retryAfterMs: () => 200, attempts: 2 });
  const outcome = assert.rejects(retry(patient.failing, patient.options), /attempt 2/);
  await patient.clock.advance(1000);
  await outcome;
  assert.deepEqual(patient.starts, [0, 200]);

  const impatient = prepare({ retryAfterMs: () => 251 });
  await assert.rejects(retry(impatient.failing, impatient.options), /attempt 1/);
});

test('no listener stays on the signal when a pause is over', async () => {
  const { signal } = new AbortController();
  const { clock, options, failing } = prepare({ signal });
  const outcome = assert.rejects(retry(failing, options), /attempt 4/);
  await clock.advance(10_000);
  await outcome;
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a cancelled retry stops waiting immediately and leaves no timer', async () => {
  const stop = new AbortController();
  const { clock, options, starts, failing } = prepare({ signal: stop.signal });
  const outcome = assert.rejects(retry(failing, options), { code: 'CALL_CANCELLED', cause: 'enough' });
  await clock.advance(50);
  stop.abort('enough');
  await outcome;
  assert.equal(starts.length, 1);
  assert.equal(clock.pending(), 0);
  await assert.rejects(retry(failing, options), { code: 'CALL_CANCELLED' });
  assert.equal(starts.length, 1);
});

test('cancelling during an attempt means that there is no further one', async () => {
  const stop = new AbortController();
  const { clock, options } = prepare({ signal: stop.signal });
  let count = 0;
  const attempt = async () => {
    count += 1;
    stop.abort();
    throw new Error('failed');
  };
  await assert.rejects(retry(attempt, options), { code: 'CALL_CANCELLED' });
  assert.equal(count, 1);
  assert.equal(clock.pending(), 0);
});
