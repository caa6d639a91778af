import { execFileSync } from 'node:child_process';
import { link, mkdir, mkdtemp, open, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

export const SECRET = 'TOP-SECRET-CONTENT';

/** A home folder with a data directory and a project in it. */
export interface World {
  readonly home: string;
  readonly data: string;
  readonly project: string;
  readonly configuration: string;
  /** Run before the folder is removed, the last one first. */
  readonly cleanups: (() => unknown)[];
}

/** Makes the folders that attacks begin with: secrets in the data directory, and links to them in the project. */
export async function makeWorld(context: TestContext): Promise<World> {
  const home = await realpath(await mkdtemp(join(tmpdir(), 'trestle-attack-')));
  const cleanups: (() => unknown)[] = [() => rm(home, { recursive: true, force: true })];
  context.after(async () => {
    for (const cleanUp of cleanups.reverse()) await cleanUp();
  });
  const data = join(home, 'share', 'trestle');
  const project = join(home, 'project');
  await mkdir(join(data, 'outbox'), { recursive: true });
  await mkdir(join(data, 'scratch', 'ses_1'), { recursive: true });
  await mkdir(project);
  for (const name of ['secret.key', 'bridge.db', 'gateway-device.pem', 'outbox/mail.txt', 'AGENTS.md']) {
    // Like the head of a skill, so that whatever reads skills would show it.
    await writeFile(join(data, name), `---\ndescription: ${SECRET}\n---\n`);
  }
  const configuration = join(project, 'trestle.yaml');
  await writeFile(configuration, `auth_token: ${SECRET}`);
  await writeFile(join(project, 'own.txt'), 'harmless');
  await mkdir(join(project, '.agents', 'skills', 'own'), { recursive: true });
  await link(join(data, 'secret.key'), join(project, '.agents', 'skills', 'own', 'SKILL.md'));
  await symlink(data, join(project, '.agents', 'skills', 'linked'));
  await symlink(join(data, 'AGENTS.md'), join(project, 'AGENTS.md'));
  await link(join(data, 'secret.key'), join(project, 'CLAUDE.md'));
  return { home, data, project, configuration, cleanups };
}

/** What an attack offers: a working directory, and what to ask for in it. */
export interface Target {
  readonly root: string;
  readonly file: string;
  readonly folder: string;
}

type Attack = (world: World) => Promise<readonly Target[] | string>;
const here = (file: string, folder: string) => (world: World) => [{ root: world.project, file, folder }];
export const attacks: Readonly<Record<string, Attack>> = {
  'the folder above the data directory': async ({ home }) => [
    { root: join(home, 'share'), file: 'trestle/secret.key', folder: 'trestle' },
    { root: home, file: 'share/trestle/outbox/mail.txt', folder: 'share/trestle/outbox' },
  ],
  'the data directory and what is in it': async ({ data }) => [
    { root: data, file: 'secret.key', folder: '.' },
    { root: join(data, 'outbox'), file: 'mail.txt', folder: '.' },
    { root: join(data, 'scratch'), file: '../secret.key', folder: '..' },
  ],
  'a scratch folder, and up from there': async ({ data }) => [
    { root: join(data, 'scratch', 'ses_1'), file: '../../secret.key', folder: '../..' },
  ],
  'dots and absolute paths': async (world) => [
    ...here('../share/trestle/secret.key', '../share/trestle')(world),
    ...here(join(world.data, 'secret.key'), world.data)(world),
  ],
  'a link to a file': async (world) => {
    await symlink(join(world.data, 'secret.key'), join(world.project, 'link'));
    return here('link', '.')(world);
  },
  'a link to a folder': async (world) => {
    await symlink(world.data, join(world.project, 'folder-link'));
    await symlink('folder-link', join(world.project, 'second-link'));
    return [
      ...here('folder-link/secret.key', 'folder-link')(world),
      ...here('second-link/secret.key', 'second-link/outbox')(world),
      { root: join(world.project, 'folder-link'), file: 'secret.key', folder: '.' },
    ];
  },
  'a second name of a secret file': async (world) => {
    const names = ['secret.key', 'bridge.db', 'gateway-device.pem'];
    for (const name of names) await link(join(world.data, name), join(world.project, `hard-${name}`));
    return names.flatMap((name) => here(`hard-${name}`, '.')(world));
  },
  'the configuration file': async (world) => {
    await link(world.configuration, join(world.project, 'copy.yaml'));
    return [...here('trestle.yaml', '.')(world), ...here('copy.yaml', '.')(world)];
  },
  'a bind mount': async (world) => {
    const mounts: readonly (readonly [from: string, to: string, kind: 'folder' | 'file'])[] = [
      [world.data, join(world.project, 'mounted'), 'folder'],
      [join(world.data, 'outbox'), join(world.project, 'mounted-outbox'), 'folder'],
      [join(world.data, 'secret.key'), join(world.project, 'mounted-key'), 'file'],
      [join(world.home, 'share'), join(world.project, 'mounted-share'), 'folder'],
    ];
    for (const [from, to, kind] of mounts) {
      await (kind === 'folder' ? mkdir(to) : writeFile(to, ''));
      try {
        execFileSync('mount', ['--bind', from, to], { stdio: 'ignore' });
      } catch {
        return 'this user may not mount anything';
      }
      world.cleanups.push(() => execFileSync('umount', [to]));
    }
    return [
      ...here('mounted/secret.key', 'mounted')(world),
      ...here('mounted-outbox/mail.txt', 'mounted-outbox')(world),
      ...here('mounted-key', '.')(world),
      ...here('mounted-share/trestle/secret.key', 'mounted-share/trestle')(world),
      { root: join(world.project, 'mounted'), file: 'secret.key', folder: '.' },
      { root: join(world.project, 'mounted', 'outbox'), file: 'mail.txt', folder: '.' },
      { root: join(world.project, 'mounted-share'), file: 'trestle/secret.key', folder: 'trestle' },
    ];
  },
  'the folder of processes': async (world) => {
    const handle = await open(join(world.data, 'secret.key'));
    world.cleanups.push(() => handle.close());
    const key = join(world.data, 'secret.key');
    return [
      ...here(`/proc/self/root${key}`, `/proc/self/root${world.data}`)(world),
      ...here(`/proc/${process.pid}/root${key}`, `/proc/${process.pid}/root${world.data}`)(world),
      ...here(`/proc/self/fd/${handle.fd}`, '/proc/self/cwd')(world),
      { root: '/', file: `proc/self/root${key}`, folder: `proc/self/root${world.data}` },
      { root: '/', file: `proc/${process.pid}/fd/${handle.fd}`, folder: 'proc/self/fd' },
      { root: '/', file: 'proc/self/environ', folder: 'proc/self' },
      { root: `/proc/self/root${world.data}`, file: 'secret.key', folder: '.' },
      { root: '/proc/self', file: 'environ', folder: '.' },
    ];
  },
  'letters in another case': async (world) => [
    ...here('../SHARE/Trestle/SECRET.KEY', '../SHARE/Trestle')(world),
    { root: world.data.toUpperCase(), file: 'secret.key', folder: '.' },
  ],
};
