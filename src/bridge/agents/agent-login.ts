import { onAbort } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { AgentConnection, LoginMethod } from './agent-connection.ts';
import type { ProgramProbeOptions } from './agent-probe.ts';
import type { LoginReport } from './agent-provider.ts';
import { describeFailure } from './agent-text.ts';

const STOP_MS = 500;
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
