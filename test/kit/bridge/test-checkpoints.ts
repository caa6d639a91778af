import { join } from 'node:path';
import type { Confine } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { createGit } from '../../../src/bridge/checkpoints/run-git.ts';
import { type Checkpoints, createCheckpoints } from '../../../src/bridge/checkpoints/turn-checkpoints.ts';
import { createPrivatePlaces, type PrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import type { OwnerRoots, WorkingDirectories } from '../../../src/bridge/sessions/working-directory.ts';
import type { BridgeSettings } from '../../../src/bridge/settings.ts';
import { createFolderList, type FolderList } from '../../../src/bridge/workbench/folders.ts';
import { createWorktrees, type Worktrees } from '../../../src/bridge/worktrees/create-worktrees.ts';
import { createDirtyCheck } from '../../../src/bridge/worktrees/worktree-files.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { silentLogger } from '../silent-logger.ts';

/** Worktrees with the git of this machine, in a data directory of the test. */
export function createTestWorktrees(
  dataDirectory: string,
  confine: Confine,
  roots: OwnerRoots,
  directories: WorkingDirectories,
): Worktrees {
  return createWorktrees({
    folder: join(dataDirectory, 'worktrees'),
    git: createGit({ path: process.env.PATH ?? '', clock: systemClock }),
    roots,
    directories,
    confine,
    clock: systemClock,
    makeId: createSortableIds(systemClock, systemRandomness),
  });
}

/** Folders with the git of this machine, in a data directory of the test. */
export function createTestFolderList(
  dataDirectory: string,
  confine: Confine,
  roots: OwnerRoots,
  places: PrivatePlaces,
): FolderList {
  const folder = join(dataDirectory, 'dirty-check');
  const git = createGit({ path: process.env.PATH ?? '', clock: systemClock });
  const makeId = createSortableIds(systemClock, systemRandomness);
  return createFolderList(roots, places, createDirtyCheck({ folder, git, confine, makeId }), systemClock);
}

/** Checkpoints with the git of this machine, in a data directory of the test. */
export function createTestCheckpoints(
  dataDirectory: string,
  confine: Confine,
  settings: BridgeSettings['checkpoints'],
  logger: Logger = silentLogger,
): Checkpoints {
  return createCheckpoints({
    folder: join(dataDirectory, 'checkpoints'),
    // No machine is so slow that a test finds nothing saved.
    settings: { ...settings, timeout: Math.max(settings.timeout, 60_000) },
    git: createGit({ path: process.env.PATH ?? '', clock: systemClock }),
    confine,
    places: createPrivatePlaces({ folders: [dataDirectory], files: [] }),
    clock: systemClock,
    logger,
  });
}
