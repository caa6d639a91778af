import { link, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
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
  for (const name of ['secret.key', 'bridge.db', 'gateway-device.pem', 'outbox/mail.txt']) {
    // Like the head of a skill, so that whatever reads skills would show it.
    await writeFile(join(data, name), `---\ndescription: ${SECRET}\n---\n`);
  }
  const configuration = join(project, 'trestle.yaml');
  await writeFile(configuration, `auth_token: ${SECRET}`);
  await writeFile(join(project, 'own.txt'), 'harmless');
  await mkdir(join(project, '.agents', 'skills', 'own'), { recursive: true });
  await link(join(data, 'secret.key'), join(project, '.agents', 'skills', 'own', 'SKILL.md'));
  await symlink(data, join(project, '.agents', 'skills', 'linked'));
  return { home, data, project, configuration, cleanups };
}
