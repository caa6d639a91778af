import { homedir } from 'node:os';
import type { Readable } from 'node:stream';
import { ConfigurationError, formatProblem } from '../platform/config/problem.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, platformErrors } from '../platform/errors/error-table.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { systemErrors } from '../system/errors.ts';

/** Everything outside of the program that a command may use. Tests pass their own. */
export interface CommandContext {
  readonly environment: Environment;
  readonly workingDirectory: string;
  readonly homeDirectory: string;
  /** Writes the text unchanged, without adding a line end. */
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Whether colours may be used: a terminal, and NO_COLOR is not set. */
  readonly color: boolean;
}

/** The real world: this process, its terminal and its user. */
export function createCommandContext(environment: CommandContext['environment']): CommandContext {
  let isWatched = false;
  return {
    environment,
    workingDirectory: process.cwd(),
    homeDirectory: homedir(),
    stdout(text) {
      // Commands that speak a protocol on the standard streams do not use this: they detect a closed stream themselves.
      if (!isWatched) process.stdout.on('error', (error) => endProgram(EXIT_OUTPUT_CLOSED, error));
      isWatched = true;
      process.stdout.write(text);
    },
    stderr: (text) => process.stderr.write(text),
    color: process.stdout.isTTY === true && (environment.NO_COLOR ?? '') === '' && environment.TERM !== 'dumb',
  };
}

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;
/** The exit code of a program that Ctrl-C has ended. */
export const EXIT_INTERRUPTED = 130;
/** The exit code of a program that SIGPIPE has ended. */
const EXIT_OUTPUT_CLOSED = 141;
/** EX_CONFIG of sysexits.h. */
export const EXIT_CONFIGURATION = 78;

/** Every exit code of every command, as `trestle --help` lists them. */
export const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [0, 'done'],
  [EXIT_FAILED, 'failed: the task failed, or something was refused, missing or unreachable'],
  [EXIT_USAGE, 'wrong usage: an unknown command or option, a missing argument, or an invalid value'],
  [EXIT_CONFIGURATION, 'wrong configuration: correct the settings, the data directory or the secret key first'],
  [EXIT_INTERRUPTED, 'ended by Ctrl-C (servers end with 0)'],
  [EXIT_OUTPUT_CLOSED, 'the program that reads the output has closed it'],
];

const errors = { ...platformErrors, ...systemErrors };
/** Only a change of the configuration fixes these. */
const CONFIGURATION_CODES: ReadonlySet<string> = new Set([
  'LISTEN_REFUSED',
  'DATA_DIRECTORY_UNUSABLE',
  'NO_DATA',
  'SECRET_KEY_INVALID',
  'SECRET_KEY_MISSING',
  'SECRET_KEY_MISMATCH',
  'NEEDS_POSTGRES',
  'WORKERS_WITHOUT_TLS',
]);

/** What a service answers when an argument or an option has a value that cannot be. */
const USAGE_CODES: ReadonlySet<unknown> = new Set([
  ...['INVALID_REQUEST', 'INVALID_PARAMS', 'INVALID_PARAMETER'],
  ...['INVALID_EMAIL', 'INVALID_ROLE', 'INVALID_PLAN', 'COPY_TARGET_INVALID'],
]);

/** The exit code for what a service has refused with this code. */
export function exitOfRefusal(code: unknown): number {
  return USAGE_CODES.has(code) ? EXIT_USAGE : EXIT_FAILED;
}

/** Terms of the API in error messages, and the options of the command line that replace them. */
const TERMINAL_WORDS: readonly (readonly [api: RegExp, words: string])[] = [
  [/GET \/api\/bridge\/(sessions|schedules) lists them/, 'trestle $1 lists them'],
  [/GET \/api\/bridge\/sessions\/(\S+)\/turns lists/, 'trestle sessions show $1 lists'],
  [/^workingDirectory cannot be used/, 'the folder (--folder) cannot be used'],
  [/^routing\.worktree cannot be used/, '--worktree cannot be used'],
  [/start one with routing\.worktree/, 'start one with trestle run --worktree'],
  [/Send it with session\.message,/, 'Send it with trestle run --session,'],
  [/^The (?:request is|parameters are) not valid: (?=.)/, ''],
  [/^(cron|every|timezone|from|to|tag|owner)(?= (?:is|must|\())/, '--$1'],
  [/^expires_at(?= )/, '--expires'],
];

export function inTerminalWords(message: string): string {
  return TERMINAL_WORDS.reduce((text, [api, words]) => text.replace(api, words), message);
}

/** An error as a person at the terminal needs it: a line (all problems of a configuration, one each) and the exit code. */
export function describeFailure(error: unknown): { readonly exit: number; readonly text: string } {
  if (error instanceof ConfigurationError) {
    const lines = error.problems.map((problem) => `${formatProblem(problem)}\n`);
    return { exit: EXIT_CONFIGURATION, text: lines.join('') };
  }
  if (error instanceof AppError && Object.hasOwn(errors, error.code)) {
    const { code, message } = describeError(errors, error);
    const exit = CONFIGURATION_CODES.has(code)
      ? EXIT_CONFIGURATION
      : exitOfRefusal(code === 'COMMAND_REFUSED' ? error.details.code : code);
    return { exit, text: `trestle: ${inTerminalWords(message)}\n` };
  }
  const reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return { exit: EXIT_FAILED, text: `trestle: unexpected error, please report it: ${reason.split('\n')[0]}\n` };
}

/** Ends the program, as a failure where its output is lost: a file on a full disk may lack a key that is shown once. */
export function endProgram(code: number, lost: NodeJS.ErrnoException | null = process.stdout.errored): never {
  // A program that closes its end of the pipe, as head does, has read enough.
  if (lost === null || lost.code === 'EPIPE') process.exit(code);
  process.stderr.write(`trestle: the output could not be written: ${lost.message}\n`);
  process.exit(EXIT_FAILED);
}

/** Thrown by a command that has printed everything: the program ends with this code and prints nothing more. */
export class CommandExit extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`exit ${code}`);
    this.name = 'CommandExit';
    this.code = code;
  }
}

/** Prints a reason, and ends the command. */
export function fail({ stderr }: Pick<CommandContext, 'stderr'>, reason: string, exit = EXIT_FAILED): never {
  stderr(`trestle: ${reason}\n`);
  throw new CommandExit(exit);
}

/** The options that were given to a command and to the program, as commander has them. */
export type Options = Readonly<Record<string, unknown>>;

export interface GivenCommand {
  optsWithGlobals(): Options;
}

/** Prints the value as JSON where `--json` is given, otherwise the text. */
export function print(command: GivenCommand, { stdout }: CommandContext, value: unknown, text: string): void {
  stdout(command.optsWithGlobals().json === true ? `${JSON.stringify(value)}\n` : text);
}

const MAX_CHARACTERS = 4096;

/** Reads the first line of standard input, because a password on the command line would be visible in the history and in the process list. */
export async function readPassword(context: CommandContext, input: Readable = process.stdin): Promise<string> {
  let text = '';
  for await (const chunk of input.setEncoding('utf8')) {
    text += chunk;
    if (text.length > MAX_CHARACTERS) break;
  }
  const [line = ''] = text.split(/\r?\n/, 1);
  if (line !== '') return line;
  context.stderr('Enter the password on standard input, as one line.\n');
  throw new CommandExit(EXIT_USAGE);
}
