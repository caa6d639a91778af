import { readFile, realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { CatalogAgent } from './agent-catalog.ts';
import { asObject, textOf } from './loose-json.ts';
import type { Probe, ProbeResult } from './probe-board.ts';

/** What a probe may do to the machine, handed in so that it can be played in tests. */
export interface ProbeEffects {
  /** The absolute path of a program, or undefined. */
  findProgram(command: string): Promise<string | undefined>;
  /** Runs a program to its end with the environment that the agent will have. */
  run(
    program: string,
    args: readonly string[],
    environment: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<{ readonly code: number | null; readonly stdout: string }>;
}

export interface AgentProbeOptions {
  readonly agent: CatalogAgent;
  readonly effects: ProbeEffects;
  /** Of the agent that lives in this process. */
  readonly ownVersion: string;
}

export function createAgentProbe({ agent, effects, ownVersion }: AgentProbeOptions): Probe {
  switch (agent.place.kind) {
    case 'in-process':
      return () => Promise.resolve({ status: 'ok', version: ownVersion });
    case 'remote':
      return createRemoteProbe(agent.place.url);
    case 'program':
      return createProgramProbe(agent.place, effects);
  }
}

/** Between a program and the description of its package. */
const PACKAGE_LEVELS = 3;

/**
 * Asks a program for its version, and again only when its file has changed: some agents take seconds to start,
 * and a probe every half minute must cost next to nothing.
 */
export function createProgramProbe(
  place: { readonly command: string; readonly environment: Readonly<Record<string, string>> },
  effects: ProbeEffects,
): Probe {
  let known: { readonly file: string; readonly result: ProbeResult } | undefined;
  return async (signal) => {
    const program = await effects.findProgram(place.command);
    if (program === undefined) return { status: 'not_installed', version: '' };
    const { mtimeMs, ino, size } = await stat(program);
    const file = [program, mtimeMs, ino, size].join(' ');
    if (known?.file === file) return known.result;
    const answer = effects.run(program, ['--version'], place.environment, signal);
    const { code, stdout } = await answer.catch(async (error: unknown) => {
      // On a busy machine some agents take very long to say what stands in their package: slow is not broken.
      const version = await packageVersion(program);
      if (version === undefined) throw error;
      return { code: 0, stdout: version };
    });
    if (code !== 0) return { status: `failed: "${place.command} --version" ended with ${code}`, version: '' };
    const result = { status: 'ok', version: /\d{1,9}\.\d{1,9}[\w.+-]{0,40}/.exec(stdout)?.[0] ?? '' };
    known = { file, result };
    return result;
  };
}

/** The version of the npm package that a program belongs to, if it does. */
async function packageVersion(program: string): Promise<string | undefined> {
  let folder = dirname(await realpath(program));
  for (let level = 0; level < PACKAGE_LEVELS; level += 1) {
    const text = await readFile(join(folder, 'package.json'), 'utf8').catch(() => '{}');
    const version = textOf(asObject(JSON.parse(text)).version);
    if (version !== '') return version;
    folder = dirname(folder);
  }
  return undefined;
}

/** A remote agent is another program of ours: its listener answers `/healthz`. */
function createRemoteProbe(url: string): Probe {
  return async (signal) => {
    const response = await fetch(new URL('/healthz', url), { signal, redirect: 'error' });
    await response.body?.cancel();
    return response.ok ? { status: 'ok', version: '' } : { status: `failed: status ${response.status}`, version: '' };
  };
}
