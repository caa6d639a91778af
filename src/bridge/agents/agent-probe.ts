import { stat } from 'node:fs/promises';
import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { type AgentPlace, type CatalogAgent, installCommand } from './agent-catalog.ts';
import type { AgentConnection } from './agent-connection.ts';
import type { LaunchAgent } from './agent-launcher.ts';
import { describeFailure } from './agent-text.ts';
import type { Probe, ProbeResult } from './probe-board.ts';

type ProgramPlace = Extract<AgentPlace, { kind: 'program' }>;

/** What a probe may do to the machine, handed in so that it can be played in tests. */
export interface ProbeEffects {
  /** The absolute path of a program, or undefined. */
  findProgram(command: string): Promise<string | undefined>;
  readonly launch: LaunchAgent;
  /** A folder in which an agent may open a conversation for the probe. */
  readonly folder: string;
}

export interface AgentProbeOptions {
  readonly agent: CatalogAgent;
  readonly effects: ProbeEffects;
  connect(process: RunningProcess, place: ProgramPlace): Promise<AgentConnection>;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
  /** Looks at the agent that lives in this process. */
  readonly builtin: Probe;
}

export function createAgentProbe({ agent, effects, connect, clock, builtin }: AgentProbeOptions): Probe {
  const { id, place } = agent;
  switch (place.kind) {
    case 'in-process':
      return builtin;
    case 'remote':
      return createRemoteProbe(place.url);
    case 'program':
      return createProgramProbe({ id, place, effects, connect: (process) => connect(process, place), clock }).look;
  }
}

/** The agent in this process works when its model can be used; `problem` says what is missing. */
export function createBuiltinProbe(version: string, model: string, problem: string | undefined): Probe {
  const advice = model === '' ? 'set agents.builtin.model' : problem;
  const result = {
    version,
    model,
    ...(advice === undefined ? { status: 'ok' } : { status: 'not_configured', advice }),
  };
  return () => Promise.resolve(result);
}

/** Looks at a program, and remembers what it found. */
export interface ProgramProbe {
  readonly look: Probe;
  /** Starts the program again at the next look, because what was found may no longer hold. */
  forget(): void;
}

export interface ProgramProbeOptions {
  readonly id: string;
  readonly place: ProgramPlace;
  readonly effects: ProbeEffects;
  connect(process: RunningProcess): Promise<AgentConnection>;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
}

const STOP_MS = 500;
/** Some agents take seconds and much memory to start: one that cannot be used is started again after growing pauses. */
const FIRST_PAUSE_MS = 25_000;
const MAX_PAUSE_MS = 5 * 60_000;

/**
 * Starts a program as a turn would, and asks it for its version and whether somebody must log in first. It is started
 * again only when its file has changed, when the last start was no success, or when it has failed in a turn since.
 */
export function createProgramProbe({ id, place, effects, connect, clock }: ProgramProbeOptions): ProgramProbe {
  let known: { readonly file: string; readonly result: ProbeResult; readonly until: number } | undefined;
  let pauseMs = FIRST_PAUSE_MS;

  async function look(signal: AbortSignal): Promise<ProbeResult> {
    const program = await effects.findProgram(place.command);
    if (program === undefined)
      return { status: 'not_installed', version: '', advice: installCommand(id, place.command) };
    const { mtimeMs, ino, size } = await stat(program);
    const file = [program, mtimeMs, ino, size].join(' ');
    if (known?.file === file && clock.monotonic() < known.until) return known.result;
    if (known?.file !== file) pauseMs = FIRST_PAUSE_MS;
    const result = await meet(signal);
    const isWhole = result.status === 'ok' && result.isSlow !== true;
    known = { file, result, until: isWhole ? Number.POSITIVE_INFINITY : clock.monotonic() + pauseMs };
    pauseMs = isWhole ? FIRST_PAUSE_MS : Math.min(MAX_PAUSE_MS, pauseMs * 2);
    return result;
  }

  async function meet(signal: AbortSignal): Promise<ProbeResult & { readonly isSlow?: boolean }> {
    const process = await effects.launch(place);
    if (process === undefined)
      return { status: 'not_installed', version: '', advice: installCommand(id, place.command) };
    const timeUp = Promise.withResolvers<'late'>();
    const onAbort = () => timeUp.resolve('late');
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    const exited = process.exited.then(({ code, stderrTail }) => {
      const words = stderrTail === '' ? '' : `: ${stderrTail}`;
      return failed(`"${place.command}" ended with exit code ${code}${words}`);
    });
    try {
      const met = introduce(process).catch(async (error: unknown) => {
        // The connection breaks a moment before the exit is known.
        const gone = await withinTime(clock, STOP_MS, exited, () => undefined);
        return gone ?? failed(describeFailure(error));
      });
      const first = await Promise.race([met, exited, timeUp.promise]);
      // On a busy machine some agents take very long to answer: slow is not broken, and the next look decides.
      return first === 'late' ? { status: 'ok', version: '', isSlow: true } : first;
    } finally {
      signal.removeEventListener('abort', onAbort);
      await process.stop({ graceMs: STOP_MS });
    }
  }

  async function introduce(process: RunningProcess): Promise<ProbeResult> {
    const connection = await connect(process);
    const { version } = connection;
    const advice = await connection.findMissingLogin(effects.folder);
    return advice === undefined ? { status: 'ok', version } : { status: 'not_logged_in', version, advice };
  }

  return {
    look,
    forget() {
      known = undefined;
    },
  };
}

function failed(why: string): ProbeResult {
  return { status: `failed: ${why.replaceAll(/\s+/g, ' ').slice(0, 80)}`, version: '' };
}

/** A remote agent is another program of ours: its listener answers `/healthz`. */
function createRemoteProbe(url: string): Probe {
  return async (signal) => {
    const response = await fetch(new URL('/healthz', url), { signal, redirect: 'error' });
    await response.body?.cancel();
    return response.ok ? { status: 'ok', version: '' } : { status: `failed: status ${response.status}`, version: '' };
  };
}
