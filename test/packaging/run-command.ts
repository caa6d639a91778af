import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { projectRoot } from '../architecture/source-file.ts';

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command to its end, on a PATH that begins with the given folders; never longer than four minutes. */
export function runCommand(
  command: readonly string[],
  cwd: string,
  pathFolders: readonly string[] = [],
  more: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const [file = '', ...args] = command;
  const env = { ...cleanEnvironment(pathFolders), ...more };
  return new Promise((resolve) => {
    execFile(file, args, { cwd, env, timeout: 240_000, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      resolve({ code, stdout, stderr });
    });
  });
}

/** The folder of the Node that runs this. */
export const pinnedNodeFolder = dirname(process.execPath);

/** As `runCommand` on the Node that runs this, for commands that must succeed. */
export async function succeed(command: readonly string[], cwd: string): Promise<Outcome> {
  const outcome = await runCommand(command, cwd, [pinnedNodeFolder]);
  assert.equal(outcome.code, 0, `${command.join(' ')}\n${outcome.stdout}\n${outcome.stderr}`);
  return outcome;
}

export interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string; readonly size: number }[];
}

/** Builds and packs the program, and installs the tarball in a folder, as an app does. */
export async function installPackage(folder: string): Promise<Packed> {
  await succeed(['npm', 'run', 'build'], projectRoot);
  const pack = ['npm', 'pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [packed]: readonly Packed[] = JSON.parse((await succeed(pack, projectRoot)).stdout);
  assert.ok(packed !== undefined);
  writeFileSync(join(folder, 'package.json'), '{"name":"app","version":"1.0.0","private":true}');
  await succeed(['npm', 'install', '--omit=dev', '--no-audit', '--no-fund', join(folder, packed.filename)], folder);
  return packed;
}

/** What an outer `npm run` or test runner adds for its own children. How to reach the registry stays. */
const FROM_OUTSIDE =
  /^(npm_(package|lifecycle|config_local_prefix)|NODE_(OPTIONS|ENV|TEST_CONTEXT|COMPILE_CACHE)|TRESTLE_|BRIDGE_|COMPLETIONS_)/;

/** The environment of a terminal, whoever started this: without the `node_modules/.bin` folders of an outer npm. */
export function cleanEnvironment(pathFolders: readonly string[]): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !FROM_OUTSIDE.test(name));
  const { PATH = '', ...rest } = Object.fromEntries(entries);
  const outer = PATH.split(':').filter(
    (folder) => !/node_modules|node-gyp-bin/.test(folder) && folder !== pinnedNodeFolder,
  );
  return { ...rest, PATH: [...pathFolders, ...outer].join(':') };
}
