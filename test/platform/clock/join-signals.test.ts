import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { joinSignals } from '../../../src/platform/clock/clock.ts';

test('a joined signal is aborted with the first of its signals, for the same reason', () => {
  const [one, two] = [new AbortController(), new AbortController()];
  const { signal } = joinSignals(one.signal, two.signal);
  assert.equal(signal.aborted, false);
  two.abort('enough');
  one.abort('too late');
  assert.deepEqual([signal.aborted, signal.reason], [true, 'enough']);
});

test('one that is joined with an aborted signal is aborted from the start', () => {
  const { signal } = joinSignals(new AbortController().signal, AbortSignal.abort('before'));
  assert.deepEqual([signal.aborted, signal.reason], [true, 'before']);
});

test('what was released leaves nothing behind on a signal that lives on', () => {
  const { signal: longLived } = new AbortController();
  for (let count = 0; count < 3; count += 1) {
    const { signal, release } = joinSignals(longLived, new AbortController().signal);
    signal.addEventListener('abort', () => assert.fail());
    release();
  }
  assert.equal(getEventListeners(longLived, 'abort').length, 0);
});
