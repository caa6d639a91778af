import { execFile } from 'node:child_process';
import { dirname } from 'node:path';

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
): Promise<Outcome> {
  const [file = '', ...args] = command;
  const env = cleanEnvironment(pathFolders);
  return new Promise((resolve) => {
    execFile(file, args, { cwd, env, timeout: 240_000, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      resolve({ code, stdout, stderr });
    });
  });
}

/** The folder of the Node that runs this. */
export const pinnedNodeFolder = dirname(process.execPath);

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
