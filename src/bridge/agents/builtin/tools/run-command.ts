import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import type { ProcessExit, RunningProcess } from '../../../../platform/child-process/start-process.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { locate, openFolder, refuse } from './confinement.ts';
import { defineTool, type ToolContext, type ToolOutput } from './tool.ts';

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
export function withErrors(output: string, errors: string): string {
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
