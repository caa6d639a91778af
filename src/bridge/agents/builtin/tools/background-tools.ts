import { Type } from 'typebox';
import { refuse } from './confinement.ts';
import { commandParameters, commandTitle, launchIn, withErrors } from './run-command.ts';
import { type BackgroundCommand, defineTool, type ToolContext, type ToolOutput } from './tool.ts';

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
    return describe(command, all);
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
    return describe(command, false);
  },
});

function find(wanted: number, background: ToolContext['background']): BackgroundCommand {
  return (
    background.find(wanted) ??
    refuse(`There is no command ${wanted} in the background any more.\n${listOf(background.all())}`)
  );
}

function describe(command: BackgroundCommand, all: boolean): ToolOutput {
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
