import { Type } from 'typebox';
import { type ProcessExit, startProcess } from '../../../../platform/child-process/start-process.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { keepOutput } from './command-output.ts';
import { locate, openFolder, refuse } from './confined-folder.ts';
import { defineTool, type ToolContext, type ToolOutput } from './tool.ts';

const HALF_OUTPUT_BYTES = 14 * 1024;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
/** A program that is told to end because of us gets no time to think about it. */
const NO_GRACE = { graceMs: 0 };

/**
 * Runs a program with its arguments as they are: nothing is expanded, and no argument becomes another one. A model that
 * wants a shell asks for one by name (`sh`, `-c`, ...), and that is then what the record of the turn shows.
 */
export const runCommandTool = defineTool({
  name: 'run_command',
  description:
    'Runs a program to its end and returns its exit code and output. There is no shell: give the program and its arguments apart; for pipes and the like run "sh" with "-c" and one line. Standard input is empty; what is left running is ended.',
  parameters: Type.Object({
    command: Type.String({ minLength: 1, maxLength: 4096, description: 'The program, such as "git".' }),
    args: Type.Optional(Type.Array(Type.String(), { maxItems: 1000, description: 'Its arguments, one by one.' })),
    working_directory: Type.Optional(Type.String({ description: 'Folder inside the working directory.' })),
    timeout_seconds: Type.Optional(Type.Integer({ minimum: 1, description: 'It is ended after that.' })),
  }),
  toolKind: 'execute',
  needsPermission: true,
  title: ({ command, args = [] }) => [command, ...args].map(quoted).join(' ').slice(0, 500),
  async run({ command, args = [], working_directory: place = '.', timeout_seconds: seconds }, context) {
    const timeoutMs = Math.min(
      seconds === undefined ? context.commands.timeoutMs : seconds * 1000,
      context.commands.timeoutMs,
    );
    const folder = await openFolder(context.root, await locate(context.root, place));
    try {
      // The program starts in the folder that was checked, also when the path leads elsewhere by then.
      const output = await runProgram(command, args, folder.entry('.'), timeoutMs, context);
      return { ...output, locations: [{ path: folder.path }] };
    } finally {
      await folder.close();
    }
  },
});

type Ending = ProcessExit | 'timeout' | 'too much' | 'cancelled';

async function runProgram(
  command: string,
  args: readonly string[],
  cwd: string,
  timeoutMs: number,
  { signal, commands }: ToolContext,
): Promise<ToolOutput> {
  signal.throwIfAborted();
  const { environment: env, journalFolder } = commands;
  const started = await startProcess({ command, args, cwd, env, journalFolder }).catch(notStarted);
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
    // Also after a normal end: what it left behind in its group goes before the model is told.
    await started.stop(NO_GRACE);
    const said = [output.text(), section('standard error', started.stderrTail())]
      .filter((part) => part !== '')
      .join('\n');
    return describe(ending, said, timeoutMs);
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
        text: `[${ending.signal === null ? `exit code ${ending.code}` : `ended by ${ending.signal}`}]\n${said}`,
      };
  }
}

function section(name: string, text: string): string {
  return text === '' ? '' : `[${name}]\n${text}`;
}

function notStarted(error: unknown): never {
  if (!(error instanceof AppError)) throw error;
  return refuse(`The program could not be started: ${String(error.details.reason)}.`);
}

/** For people: arguments with anything special in them stand in quotes. */
function quoted(argument: string): string {
  return /^[\w@%+=:,./-]{1,200}$/.test(argument) ? argument : JSON.stringify(argument);
}
