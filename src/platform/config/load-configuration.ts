import { type FileHandle, open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorCode } from '../errors/app-error.ts';
import type { Environment } from './environment-reference.ts';
import { ConfigurationError, type Problem } from './problem.ts';
import type { ConfigurationFile, Flags } from './read-layers.ts';
import { type Resolution, resolveSettings } from './resolve-settings.ts';
import type { SettingsDeclaration } from './settings-declaration.ts';

export interface LoadInput<T> {
  readonly declaration: SettingsDeclaration<T>;
  /** What the `--config` flag says. */
  readonly configFile?: string | undefined;
  readonly environment: Environment;
  readonly flags: Flags;
  readonly homeDirectory: string;
  readonly workingDirectory: string;
}

export interface Configuration<T> extends Omit<Resolution<T>, 'problems'> {
  /** The file that was read, as an absolute path; undefined when there is none. */
  readonly file: string | undefined;
}

const MAX_FILE_BYTES = 256 * 1024;

/** Reads the file and resolves the settings. Throws a `ConfigurationError` with every problem. */
export async function loadConfiguration<T>(input: LoadInput<T>): Promise<Configuration<T>> {
  const { declaration, environment, flags, homeDirectory, workingDirectory } = input;
  const choice = chooseFile(input);
  const read = await readConfigurationFile(choice.name, resolve(workingDirectory, choice.name));
  const absent = 'code' in read && read.code === 'ENOENT';
  const file = 'text' in read ? read : undefined;
  const missing: readonly Problem[] =
    file !== undefined || (absent && !choice.mustExist) ? [] : [unreadableFile(choice, read)];
  const { problems, ...resolution } = resolveSettings({
    declaration,
    ...(file !== undefined && { file }),
    environment,
    flags,
    homeDirectory,
    workingDirectory,
  });
  if (missing.length + problems.length > 0)
    throw new ConfigurationError([...missing, ...problems], resolution.warnings);
  return { ...resolution, file: file && resolve(workingDirectory, choice.name) };
}

interface FileChoice {
  readonly name: string;
  /** Who asked for it. */
  readonly where: string;
  readonly mustExist: boolean;
}

function chooseFile<T>({ declaration, configFile, environment }: LoadInput<T>): FileChoice {
  if (configFile !== undefined) return { name: configFile, where: 'flag --config', mustExist: true };
  const { fileVariable, fileName } = declaration;
  const named = environment[fileVariable] ?? '';
  if (named !== '') return { name: named, where: `environment variable ${fileVariable}`, mustExist: true };
  return { name: fileName, where: fileName, mustExist: false };
}

type ReadFile = (ConfigurationFile & { readonly mode?: number }) | { readonly code: string };

async function readConfigurationFile(name: string, path: string): Promise<ReadFile> {
  try {
    await using handle = await open(path, 'r');
    const { mode } = await handle.stat();
    const bytes = await readAtMost(handle, MAX_FILE_BYTES + 1);
    if (bytes.length > MAX_FILE_BYTES) return { code: 'TOO_LARGE' };
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    const permissions = process.platform === 'win32' ? {} : { mode };
    return { text, name, directory: dirname(path), ...permissions };
  } catch (error) {
    return { code: errorCode(error) };
  }
}

/** The size of a pipe or device is not known before it is read. */
async function readAtMost(handle: FileHandle, limit: number): Promise<Uint8Array> {
  const buffer = Buffer.alloc(limit);
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, limit - length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
  }
}

function unreadableFile({ name, where }: FileChoice, read: ReadFile): Problem {
  const code = 'code' in read ? read.code : '';
  const [wrong, right] = FILE_FAULTS[code] ?? ['cannot be read', 'check the path and the disk'];
  return { where, path: '', wrong: `the file ${name} ${wrong}`, right };
}

const FILE_FAULTS: Readonly<Record<string, readonly [wrong: string, right: string]>> = {
  ENOENT: ['does not exist', 'check the path'],
  EACCES: ['may not be read by this user', 'change its owner or mode'],
  EISDIR: ['is a folder', 'name the file in it'],
  ERR_ENCODING_INVALID_ENCODED_DATA: ['is not UTF-8 text', 'save it as UTF-8'],
  TOO_LARGE: [`is larger than ${MAX_FILE_BYTES} bytes`, 'name a configuration file'],
};
