import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import { type Clock, onAbort, withinTime } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { type AgentPlace, type CatalogAgent, installCommand } from './agent-catalog.ts';
import type { AgentConnection, LoginMethod } from './agent-connection.ts';
import type { LaunchAgent } from './agent-launcher.ts';
import type { LoginReport } from './agent-provider.ts';
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
    case 'runner':
      // Only instances know their runners.
      return async () => ({ status: 'ok', version: '', advice: 'on runners: trestle runner list' });
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
    const exited = process.exited.then(async ({ code, stderrTail }) => {
      const words = tellingWords(stderrTail);
      const hidden = await hiddenFile(words);
      return {
        ...failed(`"${basename(place.command)}" ended with exit code ${code}${words === '' ? '' : `: ${words}`}`),
        ...(hidden !== undefined && {
          advice: `the sandbox does not show ${hidden}: name its folder in bridge.sandbox_read_paths`,
        }),
      };
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

const MAX_REASON_LENGTH = 200;

function failed(why: string): ProbeResult {
  return { status: `failed: ${why.replaceAll(/\s+/g, ' ').slice(0, MAX_REASON_LENGTH)}`, version: '' };
}

/** What a program said before it ended: the line with the error, which programs put between others, or everything. */
function tellingWords(said: string): string {
  const lines = said.split('\n').map((line) => line.trim());
  return (
    lines.find((line) => /^(?:\w*Error\b|error:|fatal:)|: (?:No such file|can't open file|cannot open)/i.test(line)) ??
    said
  );
}

/** A file that a program did not find though it is there: the sandbox does not show it. */
async function hiddenFile(words: string): Promise<string | undefined> {
  if (!/cannot find|can't open|cannot open|no such file|ENOENT/i.test(words)) return undefined;
  const [path] = /\/[^\s'":,]+/.exec(words) ?? [];
  return path !== undefined && (await stat(path).catch(() => undefined)) !== undefined ? path : undefined;
}

/** A remote agent is another program of ours: its listener answers `/healthz`. */
function createRemoteProbe(url: string): Probe {
  return async (signal) => {
    const response = await fetch(new URL('/healthz', url), { signal, redirect: 'error' });
    await response.body?.cancel();
    return response.ok ? { status: 'ok', version: '' } : { status: `failed: status ${response.status}`, version: '' };
  };
}

const MAX_TEXT = 500;
const NOT_INSTALLED = 'its program was not found; install the agent first';

/**
 * Starts the program of an agent as a look at it does, and has it log in: by a method that needs no terminal, where it offers
 * one. Otherwise the report names the command for a terminal. `changed` is called when somebody may be logged in now.
 */
export function createAgentLogin(options: ProgramProbeOptions, changed: () => void) {
  const { id, place, effects, connect } = options;

  async function logIn(connection: AgentConnection, asked: string | undefined): Promise<LoginReport> {
    const { loginMethods } = connection;
    const ready = { methods: loginMethods.map(shown), command: '' };
    if (asked !== undefined && !loginMethods.some((one) => one.id === asked)) {
      const offered = loginMethods.map((one) => one.id).join(', ') || 'no way to log in';
      throw new AppError('LOGIN_METHOD_UNKNOWN', { method: asked, offered });
    }
    const missing = await connection.findMissingLogin(effects.folder);
    if (missing === undefined && asked === undefined) {
      return { ...ready, loggedIn: true, text: 'Nobody needs to log in.' };
    }
    const [method, ...others] = loginMethods.filter((one) => asked === undefined || one.id === asked);
    const byItself = [method, ...others].filter((one) => one !== undefined && one.terminal === undefined);
    const chosen = byItself.length === 1 ? byItself[0] : undefined;
    const command = await commandOf(loginMethods, asked);
    const advice = command === '' ? (missing ?? '') : `Run in a terminal, as the user that runs Trestle: ${command}`;
    if (chosen === undefined || connection.logIn === undefined) {
      const choose = byItself.length > 1 ? `Choose one of the methods by its id. ${advice}` : advice;
      return { ...ready, loggedIn: false, command, text: choose.slice(0, MAX_TEXT) };
    }
    try {
      await connection.logIn(chosen.id);
    } catch (error) {
      const text = `The agent did not log in: ${describeFailure(error)}. ${advice}`;
      return { ...ready, loggedIn: false, command, text: text.slice(0, MAX_TEXT) };
    }
    const still = await connection.findMissingLogin(effects.folder);
    changed();
    if (still === undefined) return { ...ready, loggedIn: true, text: 'Logged in.' };
    return {
      ...ready,
      loggedIn: false,
      command,
      text: `The agent still asks for a login: ${still}`.slice(0, MAX_TEXT),
    };
  }

  /** For a shell. Empty: no method needs a terminal. */
  async function commandOf(methods: readonly LoginMethod[], asked: string | undefined): Promise<string> {
    const found = methods.find((one) => one.terminal !== undefined && (asked === undefined || one.id === asked));
    if (found?.terminal === undefined) return '';
    const { args, isAppended, environment } = found.terminal;
    const program = (await effects.findProgram(place.command)) ?? place.command;
    const variables = Object.entries(environment).map(([name, value]) => `${name}=${quoted(value)}`);
    return [...variables, ...[program, ...(isAppended ? place.args : []), ...args].map(quoted)].join(' ');
  }

  return async (asked: string | undefined, signal: AbortSignal): Promise<LoginReport> => {
    const process = await effects.launch(place);
    if (process === undefined) throw new AppError('AGENT_WITHOUT_LOGIN', { agent: id, reason: NOT_INSTALLED });
    const stopped = Promise.withResolvers<LoginReport>();
    const refuse = (text: string) => stopped.resolve({ loggedIn: false, methods: [], command: '', text });
    const release = onAbort(signal, () => refuse('The agent did not answer in time; log in with its own command.'));
    void process.exited.then(({ code }) => refuse(`"${place.command}" ended with exit code ${code}.`));
    try {
      return await Promise.race([connect(process).then((connection) => logIn(connection, asked)), stopped.promise]);
    } catch (error) {
      if (error instanceof AppError) throw error;
      return { loggedIn: false, methods: [], command: '', text: describeFailure(error).slice(0, MAX_TEXT) };
    } finally {
      release();
      await process.stop({ graceMs: STOP_MS });
    }
  };
}

function shown({ id, name, description, terminal }: LoginMethod): LoginReport['methods'][number] {
  return { id, name, description, terminal: terminal !== undefined };
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
