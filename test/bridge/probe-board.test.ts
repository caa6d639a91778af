import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Probe, startProbeBoard } from '../../src/bridge/agents/probe-board.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));
const limits = { intervalMs: 30_000, timeoutMs: 15_000 };

test('every provider is looked at side by side, and again after the interval', async () => {
  const clock = createFakeClock();
  let looks = 0;
  const probe: Probe = () => {
    looks += 1;
    return Promise.resolve({ status: looks > 2 ? 'not_installed' : 'ok', version: '1.2.3' });
  };
  const board = startProbeBoard({
    probes: new Map([
      ['a', probe],
      ['b', probe],
    ]),
    clock,
    ...limits,
  });
  assert.match(board.results().get('a')?.status ?? '', /^failed: /);
  await board.firstRound;
  assert.equal(board.results().get('b')?.status, 'ok');
  const before = board.revision();
  await clock.advance(limits.intervalMs);
  assert.equal(looks, 4);
  assert.equal(board.results().get('a')?.status, 'not_installed');
  assert.ok(board.revision() > before);
  await board.stop();
});

test('a result that stays the same leaves the revision alone', async () => {
  const clock = createFakeClock();
  const probes = new Map([['a', () => Promise.resolve({ status: 'ok', version: '1' })]]);
  const board = startProbeBoard({ probes, clock, ...limits });
  await board.firstRound;
  const before = board.revision();
  await clock.advance(limits.intervalMs);
  assert.equal(board.revision(), before);
  await board.stop();
});

test('a probe that hangs is cut off and does not hold up the others', async () => {
  const clock = createFakeClock();
  const hangs: Probe = (signal) =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
  const board = startProbeBoard({
    probes: new Map([
      ['slow', hangs],
      ['quick', () => Promise.resolve({ status: 'ok', version: '' })],
    ]),
    clock,
    ...limits,
  });
  await settled();
  assert.equal(board.results().get('quick')?.status, 'ok');
  await clock.advance(limits.timeoutMs);
  assert.equal(board.results().get('slow')?.status, 'failed: timed out');
  await board.stop();
});

test('a probe that was cut off gets more time at the next look, and the usual time after a success', async () => {
  const clock = createFakeClock();
  const limitsSeen: number[] = [];
  const slow: Probe = async (signal) => {
    const started = clock.now();
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    limitsSeen.push(clock.now() - started);
    return { status: 'ok', version: '' };
  };
  const board = startProbeBoard({ probes: new Map([['slow', slow]]), clock, ...limits });
  for (const times of [1, 2, 4, 4]) {
    await clock.advance(limits.timeoutMs * times);
    await clock.advance(limits.intervalMs);
  }
  assert.deepEqual(limitsSeen, [15_000, 30_000, 60_000, 60_000]);
  await board.stop();
});

test('a probe that throws is a short failure, and stopping ends a probe under way', async () => {
  const clock = createFakeClock();
  const endless: Probe = (signal) =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const board = startProbeBoard({
    probes: new Map<string, Probe>([
      ['broken', () => Promise.reject(new Error(`first line\nsecond line ${'x'.repeat(500)}`))],
      ['endless', endless],
    ]),
    clock,
    ...limits,
  });
  await settled();
  const status = board.results().get('broken')?.status ?? '';
  assert.match(status, /^failed: first line second line x+$/);
  assert.ok(status.length < 100);
  await board.stop();
});

test('a provider can be looked at again immediately, also while it is being looked at', async () => {
  const clock = createFakeClock();
  let looks = 0;
  let finish: (() => void) | undefined;
  const probe: Probe = async () => {
    looks += 1;
    if (looks === 3) await new Promise<void>((resolve) => (finish = resolve));
    return { status: looks > 1 ? 'not_installed' : 'ok', version: '' };
  };
  const board = startProbeBoard({ probes: new Map([['a', probe]]), clock, ...limits });
  await board.firstLook('a');
  await board.firstLook('unknown');
  board.lookNow('unknown');
  await settled();
  assert.equal(looks, 1);
  board.lookNow('a');
  await settled();
  assert.equal(looks, 2);
  assert.equal(board.results().get('a')?.status, 'not_installed');
  board.lookNow('a');
  await settled();
  board.lookNow('a');
  finish?.();
  await settled();
  assert.equal(looks, 4);
  await clock.advance(limits.intervalMs);
  assert.equal(looks, 5);
  await board.stop();
});

test('a look can be waited for: one that begins later counts, and a stop ends the wait', async () => {
  const clock = createFakeClock();
  let isInstalled = false;
  const probe: Probe = async () => ({ status: isInstalled ? 'ok' : 'not_installed', version: '' });
  const board = startProbeBoard({ probes: new Map([['a', probe]]), clock, ...limits });
  await board.firstLook('a');
  isInstalled = true;
  await board.lookAgain('a');
  assert.equal(board.results().get('a')?.status, 'ok');
  await board.lookAgain('unknown');
  const last = board.lookAgain('a');
  await board.stop();
  await last;
  await board.lookAgain('a');
});
