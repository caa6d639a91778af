import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import type { ProcessExit, RunningProcess } from '../../../../platform/child-process/start-process.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { locate, openFolder, refuse } from './confinement.ts';
import { type BackgroundCommand, defineTool, type ToolContext, type ToolOutput } from './tool.ts';

const HALF_OUTPUT_BYTES = 14 * 1024;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
/** A program that we stop gets no time to end by itself. */
const NO_GRACE = { graceMs: 0 };

/** What every tool that starts a program takes. */
export const commandParameters = {
  command: Type.String({ minLength: 1, maxLength: 4096, description: 'The program, such as "git".' }),
  args: Type.Optional(Type.Array(Type.String(), { maxItems: 1000, description: 'Its arguments, one by one.' })),
  working_directory: Type.Optional(Type.String({ description: 'Folder inside the working directory.' })),
};

interface CommandInput {
  readonly command: string;
  readonly args?: readonly string[];
  readonly working_directory?: string;
}

/**
 * Runs a program with its arguments as they are: nothing is expanded, and no argument becomes another one. A model that
 * wants a shell asks for one by name (`sh`, `-c`, ...), and that is then what the record of the turn shows.
 */
export const runCommandTool = defineTool({
  name: 'run_command',
  description:
    'Runs a program to its end and returns its exit code and output. There is no shell: give the program and its arguments apart; for pipes and the like run "sh" with "-c" and one line. Standard input is empty; what is left running is ended.',
  parameters: Type.Object({
    ...commandParameters,
    timeout_seconds: Type.Optional(Type.Integer({ minimum: 1, description: 'It is ended after that.' })),
  }),
  toolKind: 'execute',
  needsPermission: true,
  title: (input) => commandTitle(input),
  async run(input, context) {
    const { timeout_seconds: seconds } = input;
    const timeoutMs = Math.min(
      seconds === undefined ? context.commands.timeoutMs : seconds * 1000,
      context.commands.timeoutMs,
    );
    const { started, path } = await launchIn(input, context);
    return { ...(await toItsEnd(started, timeoutMs, context)), locations: [{ path }] };
  },
});

/** A command as people see it. */
export function commandTitle({ command, args = [] }: CommandInput): string {
  return [command, ...args].map(quoted).join(' ').slice(0, 500);
}

/** Starts a program in a folder of the working directory. Listen to its output without waiting for anything else before. */
export async function launchIn(
  { command, args = [], working_directory: place = '.' }: CommandInput,
  { root, signal, commands }: ToolContext,
): Promise<{ readonly started: RunningProcess; readonly path: string }> {
  const folder = await openFolder(root, await locate(root, place));
  try {
    signal.throwIfAborted();
    const { environment: env, journalFolder } = commands;
    // The program starts in the folder that was checked, also when the path leads elsewhere by then.
    const given = { command, args, cwd: folder.entry('.'), env, journalFolder };
    return { started: await commands.start(given, folder.path).catch(notStarted), path: folder.path };
  } finally {
    // Not waited for: the program may end before, and Node drops output that nobody listens to by then.
    void folder.close().catch(() => undefined);
  }
}

type Ending = ProcessExit | 'timeout' | 'too much' | 'cancelled';

async function toItsEnd(
  started: RunningProcess,
  timeoutMs: number,
  { signal, commands }: ToolContext,
): Promise<ToolOutput> {
  const { promise: stopped, resolve } = Promise.withResolvers<Ending>();
  const output = keepOutput(started.stdout, {
    halfBytes: HALF_OUTPUT_BYTES,
    limitBytes: MAX_OUTPUT_BYTES,
    onLimit: () => resolve('too much'),
  });
  const onAbort = (): void => resolve('cancelled');
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  const stopTimer = commands.clock.after(timeoutMs, () => resolve('timeout'));
  try {
    started.stdin.end();
    const ending = await Promise.race([started.exited, stopped]);
    // Also after a normal end: the rest of its process group is ended before the model gets the result.
    await started.stop(NO_GRACE);
    return describe(ending, withErrors(output.text(), started.stderrTail()), timeoutMs);
  } finally {
    stopTimer();
    signal.removeEventListener('abort', onAbort);
  }
}

function describe(ending: Ending, said: string, timeoutMs: number): ToolOutput {
  switch (ending) {
    case 'timeout':
      return { failed: true, text: `[ended after ${timeoutMs} ms]\n${said}` };
    case 'too much':
      return { failed: true, text: `[ended, because it printed more than ${MAX_OUTPUT_BYTES} bytes]\n${said}` };
    case 'cancelled':
      return { failed: true, text: `[ended, because the turn was cancelled]\n${said}` };
    default:
      return {
        ...(ending.code !== null && { exitCode: ending.code }),
        text: `[${ending.signal === null ? `exit code ${ending.code}` : `ended by ${ending.signal}`}]\n${said}`,
      };
  }
}

/** What a program printed, and below it what it printed on standard error. */
function withErrors(output: string, errors: string): string {
  const section = errors === '' ? '' : `[standard error]\n${errors}`;
  return [output, section].filter((part) => part !== '').join('\n');
}

function notStarted(error: unknown): never {
  if (!(error instanceof AppError)) throw error;
  return refuse(`The program could not be started: ${String(error.details.reason)}.`);
}

/** For people: arguments with anything special in them stand in quotes. */
function quoted(argument: string): string {
  return /^[\w@%+=:,./-]{1,200}$/.test(argument) ? argument : JSON.stringify(argument);
}

/** What is kept of a stream of any length: its beginning and its end. */
interface KeptOutput {
  text(): string;
}

interface KeepOptions {
  /** Of the beginning, and as much of the end. */
  readonly halfBytes: number;
  /** Called once, when more than this came. */
  readonly limitBytes: number;
  onLimit(): void;
}

function keepOutput(stream: Readable, { halfBytes, limitBytes, onLimit }: KeepOptions): KeptOutput {
  const head: Buffer[] = [];
  let tail: Buffer[] = [];
  let headLeft = halfBytes;
  let tailBytes = 0;
  let size = 0;
  stream.on('data', (chunk: Buffer) => {
    const isFirstOver = size <= limitBytes && size + chunk.length > limitBytes;
    size += chunk.length;
    const first = chunk.subarray(0, headLeft);
    if (first.length > 0) head.push(first);
    headLeft -= first.length;
    tail.push(chunk.subarray(first.length));
    tailBytes += chunk.length - first.length;
    if (tailBytes >= 2 * halfBytes) {
      tail = [Buffer.concat(tail).subarray(-halfBytes)];
      tailBytes = halfBytes;
    }
    if (isFirstOver) onLimit();
  });
  return {
    text() {
      const omitted = size - 2 * halfBytes;
      if (omitted <= 0) return Buffer.concat([...head, ...tail]).toString('utf8');
      const end = Buffer.concat(tail).subarray(-halfBytes);
      return `${wholeCharacters(Buffer.concat(head))}\n[${omitted} bytes left out]\n${wholeCharacters(end)}`;
    },
  };
}

/** Text without the parts of characters that a cut has left at its ends. */
function wholeCharacters(bytes: Buffer): string {
  const { start, end } = characterBounds(bytes);
  return bytes.toString('utf8', start, end);
}

/** Where the first whole character of a cut text begins, and where the last one ends. */
export function characterBounds(bytes: Buffer): { readonly start: number; readonly end: number } {
  let start = 0;
  while (start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  let end = bytes.length;
  for (let back = 1; back <= Math.min(3, end - start); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    if (byte >= 0xc0 && lengthOfCharacter(byte) > back) end -= back;
    break;
  }
  return { start, end };
}

function lengthOfCharacter(firstByte: number): number {
  if (firstByte >= 0xf0) return 4;
  return firstByte >= 0xe0 ? 3 : 2;
}

/** Below the time after which clients and proxies give up a silent connection. */
const MAX_WAIT_SECONDS = 30;

const id = Type.Integer({ minimum: 1, description: 'The number that start_command gave to it.' });

/** Starts a program and leaves it running, for servers and for work that takes long. */
export const startCommandTool = defineTool({
  name: 'start_command',
  description:
    'Starts a program in the background and returns its number. Give the program and its arguments apart, as for run_command. It goes on when this turn ends, until it ends by itself, or by stop_command, or with the session. Read what it prints with read_command.',
  parameters: Type.Object(commandParameters),
  toolKind: 'execute',
  needsPermission: true,
  title: (input) => `${commandTitle(input)} (in the background)`,
  async run(input, context) {
    const { process, path } = await startIn(input, context);
    return { text: `[command ${process.id} runs in the background]`, locations: [{ path }] };
  },
});

async function startIn(input: Parameters<typeof launchIn>[0], context: ToolContext) {
  let path = '';
  const process = await context.background.start(commandTitle(input), async () => {
    const launched = await launchIn(input, context);
    path = launched.path;
    return launched.started;
  });
  return { process, path };
}

/** Shows what a command in the background has printed since it was read last. */
export const readCommandTool = defineTool({
  name: 'read_command',
  description: `Reads what a command in the background printed since you read it last, and whether it still runs. wait_seconds waits for news, at most ${MAX_WAIT_SECONDS}. Without a number it lists all commands in the background.`,
  parameters: Type.Object({
    id: Type.Optional(id),
    wait_seconds: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_WAIT_SECONDS, description: 'Default 0.' })),
    all: Type.Optional(Type.Boolean({ description: 'Also what you have read, as far as it is kept. Default false.' })),
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ id: wanted }) => (wanted === undefined ? 'List commands' : `Read command ${wanted}`),
  async run({ id: wanted, wait_seconds: seconds = 0, all = false }, { background, signal }) {
    if (wanted === undefined) return { text: listOf(background.all()) };
    const command = find(wanted, background);
    if (seconds > 0) await command.news(seconds * 1000, signal);
    signal.throwIfAborted();
    return describeBackground(command, all);
  },
});

/** Ends a command in the background. What it may do was decided when it was started. */
export const stopCommandTool = defineTool({
  name: 'stop_command',
  description: 'Ends a command in the background with all that it has started, and returns the rest of its output.',
  parameters: Type.Object({ id }),
  toolKind: 'execute',
  needsPermission: false,
  isParallel: false,
  title: ({ id: wanted }) => `Stop command ${wanted}`,
  async run({ id: wanted }, { background }) {
    const command = find(wanted, background);
    await command.stop();
    return describeBackground(command, false);
  },
});

function find(wanted: number, background: ToolContext['background']): BackgroundCommand {
  return (
    background.find(wanted) ??
    refuse(`There is no command ${wanted} in the background any more.\n${listOf(background.all())}`)
  );
}

function describeBackground(command: BackgroundCommand, all: boolean): ToolOutput {
  const { state, output, lost, errors, exitCode } = command.read(all);
  const before = lost > 0 ? `[${lost} bytes left out]\n` : '';
  return {
    text: `[${state}]\n${withErrors(`${before}${output}`, errors)}`,
    ...(exitCode !== undefined && { exitCode }),
  };
}

function listOf(commands: readonly BackgroundCommand[]): string {
  if (commands.length === 0) return '[no command is in the background]';
  return commands.map((one) => `${one.id}: ${one.title} [${one.isRunning() ? 'running' : 'ended'}]`).join('\n');
}
