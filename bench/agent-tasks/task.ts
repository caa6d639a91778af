import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runToEnd } from '../../test/kit/run-to-end.ts';
import type { ScriptedAnswer } from '../../test/kit/scripted-answers.ts';

/** A piece of work in a small repository, and how to tell whether it was done. */
export interface AgentTask {
  readonly name: string;
  readonly prompt: string;
  /** The repository: contents by path. */
  readonly files: Readonly<Record<string, string>>;
  /** Throws when the work was not done; what it throws says what is missing. */
  check(folder: string): Promise<void>;
  /** What a model does that does it right, answer by answer; then it says that it is done. */
  readonly solution: readonly ScriptedAnswer[];
}

const CHECK_MS = 20_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

/** Runs code in the folder; throws with its error when it fails. */
export async function runs(folder: string, code: string): Promise<void> {
  const { code: exit, stderr } = await runToEnd({
    command: process.execPath,
    args: ['--input-type=module', '--eval', `import assert from 'node:assert/strict';\n${code}`],
    cwd: folder,
    env: { PATH: process.env.PATH ?? '' },
    timeoutMs: CHECK_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
  });
  assert.equal(exit, 0, stderr.slice(-2000));
}

export function textOf(folder: string, path: string): Promise<string> {
  return readFile(join(folder, path), 'utf8');
}

export async function unchanged({ files }: Pick<AgentTask, 'files'>, folder: string, paths: readonly string[]) {
  for (const path of paths) assert.equal(await textOf(folder, path), files[path], `${path} was changed`);
}

const answer = (...calls: readonly { readonly name: string; readonly input: unknown }[]): ScriptedAnswer => ({ calls });

export const reads = (...paths: readonly string[]) =>
  answer(...paths.map((path) => ({ name: 'read_file', input: { path } })));

export const writes = (path: string, content: string) => answer({ name: 'write_file', input: { path, content } });

export const edits = (...changes: readonly (readonly [path: string, from: string, to: string])[]) =>
  answer(...changes.map(([path, old_text, new_text]) => ({ name: 'edit_file', input: { path, old_text, new_text } })));

export const searches = (text: string) => answer({ name: 'search_files', input: { text } });

export const shell = (line: string, name = 'run_command') =>
  answer({ name, input: { command: 'sh', args: ['-c', line] } });

export const calls = (name: string, input: unknown) => answer({ name, input });
