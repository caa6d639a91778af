import { chmod, copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { type Scope, temporaryFolder } from '../kit/running-program.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/release-0-1-0/', import.meta.url));

/** What `test/fixtures/release-0-1-0/facts.json` holds. */
interface Facts {
  readonly ann: { readonly password: string; readonly token: string };
  readonly ben: {
    readonly password: string;
    readonly token: string;
    readonly totp: string;
    readonly recoveryCodes: readonly [string, ...string[]];
    readonly key: string;
  };
  readonly masterKeyTeam: string;
  readonly agentToken: string;
  readonly job: string;
  readonly counts: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

export const facts = JSON.parse(await readFile(join(FIXTURE, 'facts.json'), 'utf8')) as Facts;

/** A data directory as release 0.1.0 left it. */
export async function unpackFixture(scope: Scope): Promise<string> {
  const folder = await temporaryFolder(scope);
  for (const name of ['bridge', 'completions', 'accounts']) {
    const packed = await readFile(join(FIXTURE, `${name}.db.gz`));
    await writeFile(join(folder, `${name}.db`), gunzipSync(packed), { mode: 0o600 });
  }
  await copySecretKey(folder);
  return folder;
}

export async function fixtureSecretKey(): Promise<string> {
  return (await readFile(join(FIXTURE, 'secret.key'), 'utf8')).trim();
}

export async function copySecretKey(folder: string): Promise<void> {
  const file = join(folder, 'secret.key');
  await copyFile(join(FIXTURE, 'secret.key'), file);
  await chmod(file, 0o600);
}
