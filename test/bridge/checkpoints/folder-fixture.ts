import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, realpath, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { createConfinement } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { createFolderState } from '../../../src/bridge/checkpoints/folder-state.ts';
import { createGit } from '../../../src/bridge/checkpoints/run-git.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';

/** Holds everything that a test file makes; removed at its end. */
export const top = await realpath(await mkdtemp(join(tmpdir(), 'trestle-state-')));
after(() => rm(top, { recursive: true, force: true }));
export const confine = createConfinement({
  places: createPrivatePlaces({ folders: [join(top, 'data')], files: [] }),
  isScratch: () => false,
});
export const PATH = process.env.PATH ?? '';
export const git = createGit({ path: PATH, clock: systemClock });
export const { signal } = new AbortController();
let folders = 0;

export function gitIn(folder: string, ...args: string[]): string {
  const identity = {
    GIT_AUTHOR_NAME: 'a',
    GIT_AUTHOR_EMAIL: 'a@b',
    GIT_COMMITTER_NAME: 'a',
    GIT_COMMITTER_EMAIL: 'a@b',
  };
  const env = { PATH, HOME: '/nonexistent', ...identity };
  return execFileSync('git', args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'ignore'] }).toString();
}

export async function makeFolder(files: Readonly<Record<string, string>> = {}): Promise<string> {
  folders += 1;
  const folder = join(top, `work-${folders}`);
  await mkdir(folder);
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true });
    await writeFile(join(folder, path), content);
  }
  return folder;
}

/** A repository whose files are older than its index, as in real life: git trusts their times then. */
export async function makeRepository(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await makeFolder(files);
  for (const path of Object.keys(files)) await utimes(join(folder, path), 1_700_000_000, 1_700_000_000);
  gitIn(folder, 'init', '-q', '.');
  gitIn(folder, 'add', '-A');
  gitIn(folder, 'commit', '-qm', 'first');
  return folder;
}

export function stateOf(folder: string, limits = { maxFiles: 100, maxBytes: 1_000_000 }) {
  folders += 1;
  const gitFolder = join(top, 'data', `git-${folders}`);
  return { ...createFolderState({ git, root: confine(folder), gitFolder, ...limits }), gitFolder };
}
