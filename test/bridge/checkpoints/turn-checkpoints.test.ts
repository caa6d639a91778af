import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Git } from '../../../src/bridge/checkpoints/run-git.ts';
import { createCheckpoints } from '../../../src/bridge/checkpoints/turn-checkpoints.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';
import { confine, git, makeFolder, signal } from './folder-fixture.ts';

const SETTINGS = { enabled: true, timeout: 2000, max_files: 100, max_bytes: 1_000_000, turns: 20 };
const LATE = 'saving the folder took longer than 2s (bridge.checkpoints.timeout).';

/** Checkpoints whose git does nothing until its time is up, as long as `isSlow` says so. */
async function startCheckpoints() {
  const clock = createFakeClock();
  const state = { isSlow: true, runs: 0 };
  const slowGit: Git = {
    run(args, options) {
      state.runs += 1;
      if (!state.isSlow) return git.run(args, options);
      return new Promise((_, reject) => {
        options.signal.addEventListener('abort', () =>
          reject(new AppError('GIT_FAILED', { reason: 'it took too long' })),
        );
      });
    },
  };
  const checkpoints = createCheckpoints({
    folder: await makeFolder(),
    settings: SETTINGS,
    git: slowGit,
    confine,
    places: { isAbove: async () => false, covers: () => false, look: async () => ({ has: () => false }) } as never,
    clock,
    logger: silentLogger,
  });
  const folder = await makeFolder({ a: '1' });
  const begin = async (turnId: string) => {
    const before = state.runs;
    const notice = checkpoints.begin({ sessionKey: 'one', turnId, folder }, signal);
    if (state.isSlow) {
      await until('git to be started', () => state.runs > before);
      clock.advance(SETTINGS.timeout);
    }
    return notice;
  };
  return { checkpoints, folder, state, begin };
}

test('a save that takes too long is named with its setting, and the next turn of the session is saved', async () => {
  const { checkpoints, folder, state, begin } = await startCheckpoints();
  assert.equal(await begin('turn-1'), `The changes of this turn cannot be undone: ${LATE}`);
  state.isSlow = false;
  assert.equal(await begin('turn-2'), '');
  await writeFile(join(folder, 'a'), '2');
  assert.deepEqual(await checkpoints.end({ sessionKey: 'one', turnId: 'turn-2', folder }), {
    files: 1,
    added: 1,
    removed: 1,
  });
});

test('after three saves in a row that take too long, the turns of a session no longer wait', async () => {
  const { state, begin, checkpoints, folder } = await startCheckpoints();
  await begin('turn-1');
  await begin('turn-2');
  assert.equal(await begin('turn-3'), `The changes of this session cannot be undone: ${LATE}`);
  const { runs } = state;
  assert.equal(await checkpoints.begin({ sessionKey: 'one', turnId: 'turn-4', folder }, signal), '');
  assert.equal(state.runs, runs);
});
