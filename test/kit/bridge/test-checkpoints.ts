import { join } from 'node:path';
import type { Confine } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { createGit } from '../../../src/bridge/checkpoints/run-git.ts';
import { type Checkpoints, createCheckpoints } from '../../../src/bridge/checkpoints/turn-checkpoints.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import type { BridgeSettings } from '../../../src/bridge/settings.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { silentLogger } from '../silent-logger.ts';

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
