import { randomBytes } from 'node:crypto';
import { basename, resolve } from 'node:path';
import type { Command } from 'commander';
import type { AgentSession, SessionDefaults, TrestleClient, Turn } from '../client/trestle-client.ts';
import { systemClock } from '../platform/clock/clock.ts';
import {
  type CommandContext,
  CommandExit,
  EXIT_FAILED,
  EXIT_INTERRUPTED,
  EXIT_USAGE,
  fail,
} from './command-context.ts';
import { type ConnectedServer, withServer, withTeamOption } from './load-settings.ts';
import { createTurnDisplay, createWaitNotices } from './turn-display.ts';

/** Options of `run` and `chat`. */
export interface TurnCommandOptions {
  readonly agent?: string;
  readonly model?: string;
  readonly folder?: string;
  readonly session?: string;
  readonly attach?: readonly string[];
  readonly mcp?: readonly string[];
  readonly ask?: true;
  readonly allow?: true;
  readonly deny?: true;
}

interface RunOptions extends TurnCommandOptions {
  readonly background?: true;
  readonly worktree?: true | string;
  readonly json?: true;
}

/** `trestle run`. */
export function registerRun(program: Command, context: CommandContext): void {
  withTurnOptions(
    program
      .command('run')
      .summary('run a task with an agent and show its work')
      .description(
        'Runs one task with an agent in this folder and shows its work. Uses the running server, or this process if no server is running. The answer goes to standard output, everything else to standard error. Ctrl-C cancels the task, a second Ctrl-C ends the command.',
      )
      .argument('[prompt...]', 'the task; "-" at the end stands for standard input'),
  )
    .option(
      '--worktree [base]',
      'work in a git worktree of the folder, from its last commit or from this branch, tag or commit; "trestle sessions merge" merges it',
    )
    .option('--background', 'submit the task to the server as a job, print its id and exit')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle run "Why does the build fail?"\n  trestle run --agent codex --folder ~/project "Make the tests pass"\n  git diff | trestle run "Review this change:" -\n  trestle run --attach error.png "What does this mean?"',
    )
    .action(async (words: readonly string[], _given: unknown, command: Command) => {
      const options = command.optsWithGlobals<RunOptions>();
      checkPermissionOptions(options, context);
      const prompt = await readPrompt(words, context);
      const files = await readFiles(options.attach, context);
      const mcpServers = await readMcpFiles(options.mcp, context);
      await withServer({ ...options }, context, async (trestle, server) => {
        if (options.background === true && server.isOwn) {
          fail(context, 'a task in the background needs a running server; start one with: trestle serve');
        }
        const attachments = await uploadFiles(trestle, files);
        const task = {
          prompt,
          attachments,
          folder: taskFolder(options, context, server),
          mcpServers,
          ...apart(options),
        };
        if (options.background === true) await submit(trestle, task, options, context);
        else await runOnce(trestle, task, options, context);
      });
    });
}

type TurnFiles = NonNullable<SessionDefaults['attachments']>;
type McpServers = NonNullable<SessionDefaults['mcpServers']>;

export interface Task {
  readonly prompt: string;
  readonly attachments: TurnFiles;
  /** Where a session that the task starts works. One that it continues keeps its own folder. */
  readonly folder: string | undefined;
  /** Of a session that the task starts. */
  readonly mcpServers?: McpServers;
  readonly worktree?: Routing['worktree'];
}

type Routing = NonNullable<SessionDefaults['routing']>;

function apart({ worktree }: RunOptions): Pick<Task, 'worktree'> {
  if (worktree === undefined) return {};
  return { worktree: worktree === true ? true : { base: worktree } };
}

function collect(file: string, before: readonly string[] = []): readonly string[] {
  return [...before, file];
}

interface LocalFile {
  readonly name: string;
  readonly content: Uint8Array<ArrayBuffer>;
}

/** Reads the files before anything is started, so that a wrong name has no effect. */
export async function readFiles(
  paths: readonly string[] = [],
  context: CommandContext,
  verb = 'attached',
): Promise<readonly LocalFile[]> {
  const { readFile } = await import('node:fs/promises');
  return Promise.all(
    paths.map(async (path) => {
      const content = await readFile(resolve(context.workingDirectory, path)).catch((error: Error) =>
        fail(context, `${path} cannot be ${verb}: ${error.message}`, EXIT_USAGE),
      );
      return { name: basename(path), content };
    }),
  );
}

export async function uploadFiles(trestle: TrestleClient, files: readonly LocalFile[]): Promise<TurnFiles> {
  const attachments: TurnFiles = [];
  for (const { name, content } of files) {
    const { attachmentId } = await trestle.attachments.upload(content, { name });
    attachments.push({ attachmentId });
  }
  return attachments;
}

export function checkPermissionOptions({ ask, allow, deny }: TurnCommandOptions, context: CommandContext): void {
  if ([ask, allow, deny].filter((one) => one === true).length < 2) return;
  fail(context, '--ask, --allow and --deny exclude each other; use only one', EXIT_USAGE);
}

/** Read by `readMcpFiles`. */
export const MCP_OPTION = [
  '--mcp <file>',
  'a JSON file with MCP servers for a session that is started, as in .mcp.json: { "mcpServers": { "name": { "command": "..." } } }; repeat it for several files',
  collect,
] as const;

/** The options of a command that runs turns. */
export function withTurnOptions(command: Command): Command {
  return withTeamOption(command)
    .option('--agent <id>', 'the agent to use (default: chosen by the server)')
    .option('--model <name>', 'the model to use (default: chosen by the agent)')
    .option('--folder <path>', 'the folder to work in (default: this one, or that of the continued session)')
    .option('--session <id>', 'continue this session, or start it if it does not exist')
    .option('--attach <file>', 'a file to attach to the task; repeat it for several files', collect)
    .option(...MCP_OPTION)
    .option('--ask', 'ask before the agent runs commands or changes files; you answer with a key')
    .option('--allow', 'allow what the agent asks for, unless a rule of the server denies it')
    .option('--deny', 'deny what the agent asks for');
}

/** Reads the form in which MCP servers are usually written down, before anything is started. */
export async function readMcpFiles(paths: readonly string[] = [], context: CommandContext): Promise<McpServers> {
  const files = await readFiles(paths, context, 'read');
  return files.flatMap(({ content }, index) => {
    try {
      return readMcpFile(JSON.parse(Buffer.from(content).toString('utf8')));
    } catch (error) {
      // The message of the parser may quote the file, and with it a secret.
      const reason = error instanceof SyntaxError ? 'it is not JSON' : (error as Error).message;
      return fail(context, `${paths[index]} cannot be used: ${reason}`, EXIT_USAGE);
    }
  });
}

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function readMcpFile(file: unknown): McpServers {
  const servers = isFields(file) ? file.mcpServers : undefined;
  if (!isFields(servers)) throw new Error('write { "mcpServers": { "name": { "command": "..." } } }');
  return Object.entries(servers).map(([name, given]) => {
    if (!isFields(given)) throw new Error(`mcpServers.${name} is not an object`);
    const { type = given.url === undefined ? 'stdio' : 'http', command, args, env, url, headers } = given;
    const pairs = (values: unknown, member: string) => {
      if (!isFields(values)) throw new Error(`mcpServers.${name}.${member} is not an object of strings`);
      return Object.entries(values).map(([key, value]) => ({ name: key, value: String(value) }));
    };
    const server = {
      name,
      type,
      ...(command !== undefined && { command }),
      ...(args !== undefined && { args }),
      ...(env !== undefined && { env: pairs(env, 'env') }),
      ...(url !== undefined && { url }),
      ...(headers !== undefined && { headers: pairs(headers, 'headers') }),
    };
    // The server checks the rest, and names what is wrong.
    return server as McpServers[number];
  });
}

/** Returns the task: the words of the command line, with standard input in place of a final `-`. */
async function readPrompt(words: readonly string[], context: CommandContext): Promise<string> {
  const isPiped = words.at(-1) === '-';
  const given = (isPiped ? words.slice(0, -1) : words).join(' ');
  const piped = isPiped ? (await (await import('node:stream/consumers')).text(process.stdin)).trimEnd() : '';
  const prompt = [given, piped].filter((part) => part.trim() !== '').join('\n\n');
  if (prompt !== '') return prompt;
  const where = isPiped ? ' (standard input was empty)' : ', or trestle run - to read it from standard input';
  return fail(context, `the task is missing: trestle run "what to do"${where}`, EXIT_USAGE);
}

/** A server elsewhere has other folders: there one is named as the server knows it, or not at all. */
export function taskFolder(
  { folder }: TurnCommandOptions,
  { workingDirectory }: CommandContext,
  { sharesFiles }: ConnectedServer,
): string | undefined {
  return sharesFiles ? resolve(workingDirectory, folder ?? '.') : folder;
}

/** Returns the options of each turn of the command. The folder is sent only if `--folder` names it. */
export function turnDefaults(
  { agent, model, folder: named, ask, allow, deny }: TurnCommandOptions,
  folder: string | undefined,
): SessionDefaults {
  return {
    ...(named !== undefined && inFolder(folder)),
    routing: {
      ...(agent !== undefined && { routingMode: 'explicit' as const, explicitProviderId: agent }),
      ...(model !== undefined && { explicitModel: model }),
      ...(ask === true && { permissions: 'ask' as const }),
      ...(allow === true && { permissions: 'allow' as const }),
      ...(deny === true && { permissions: 'deny' as const }),
    },
  };
}

function inFolder(folder: string | undefined): Pick<SessionDefaults, 'workingDirectory'> {
  return folder === undefined ? {} : { workingDirectory: folder };
}

export function newSessionId(): string {
  return `run-${randomBytes(5).toString('hex')}`;
}

async function submit(
  trestle: TrestleClient,
  { prompt: taskPrompt, attachments, folder, mcpServers = [], worktree }: Task,
  options: RunOptions,
  context: CommandContext,
): Promise<void> {
  const sessionId = options.session ?? newSessionId();
  const place = folder !== undefined && (await isContinued(trestle, options)) ? {} : inFolder(folder);
  const defaults = turnDefaults(options, folder);
  const routing = { ...defaults.routing, ...(worktree !== undefined && { worktree }) };
  const given = { ...place, ...defaults, routing, ...(mcpServers.length > 0 && { mcpServers }) };
  const job = await trestle.jobs.submit({ sessionId, taskPrompt, attachments, ...given });
  context.stdout(options.json === true ? `${JSON.stringify(job)}\n` : `${job.jobId}\n`);
}

/** The owner of what commands start on this machine. They see sessions of the same name that belong to others, too. */
const OPERATOR = 'main';

/** A job says the same to start a session and to continue it. */
async function isContinued(trestle: TrestleClient, { session }: RunOptions): Promise<boolean> {
  if (session === undefined) return false;
  const { TrestleError } = await import('../client/trestle-client.ts');
  try {
    await trestle.sessions.get(session, { owner: OPERATOR });
    return true;
  } catch (error) {
    if (error instanceof TrestleError && error.code === 'SESSION_NOT_FOUND') return false;
    throw error;
  }
}

async function runOnce(
  trestle: TrestleClient,
  task: Task,
  options: RunOptions,
  context: CommandContext,
): Promise<void> {
  const session = trestle.session(options.session ?? newSessionId(), turnDefaults(options, task.folder));
  let interrupts = 0;
  const interrupt = () => {
    interrupts += 1;
    if (interrupts > 1) process.exit(EXIT_INTERRUPTED);
    session.cancel().catch(() => undefined);
  };
  process.on('SIGINT', interrupt);
  const { whileAnswering, terminalKeys } = await import('./answer-permissions.ts');
  const place = { trestle, session, context, isInterrupted: () => interrupts > 0 };
  const answers = { trestle, session, context, keys: terminalKeys, isAsked: options.ask === true };
  try {
    const status = await whileAnswering(answers, () => showTurn(place, task, options));
    if (interrupts > 0) throw new CommandExit(EXIT_INTERRUPTED);
    if (status !== 'completed') throw new CommandExit(EXIT_FAILED);
    if (context.color && options.json !== true) {
      context.stderr(`continue with: trestle run --session ${session.sessionId} "..."\n`);
    }
  } finally {
    process.off('SIGINT', interrupt);
  }
}

/** Runs a turn, shows it, and returns its status. A session that exists is continued; any other is started. */
export async function showTurn(
  place: TurnPlace,
  { prompt, attachments, folder, mcpServers = [], worktree }: Task,
  { session: named, json, ...options }: TurnCommandOptions & Pick<RunOptions, 'json'>,
): Promise<string> {
  const { session } = place;
  const isAsked = options.ask === true;
  const files = attachments.length === 0 ? {} : { attachments };
  const servers = mcpServers.length === 0 ? {} : { mcpServers };
  const { routing } = turnDefaults(options, folder);
  const own = worktree === undefined ? {} : { routing: { ...routing, worktree } };
  const start = () => session.start(prompt, { ...files, ...inFolder(folder), ...servers, ...own });
  const first = named === undefined ? start() : session.message(prompt, files);
  try {
    return await show(first, place, json === true, isAsked);
  } catch (error) {
    const { TrestleError } = await import('../client/trestle-client.ts');
    const isNew =
      named !== undefined && error instanceof TrestleError && error.code === 'SESSION_CONTINUATION_UNAVAILABLE';
    if (!isNew) throw error;
    return await show(start(), place, json === true, isAsked);
  }
}

/** Where a turn runs and is shown. */
interface TurnPlace {
  readonly trestle: TrestleClient;
  readonly session: AgentSession;
  readonly context: CommandContext;
  /** Whether Ctrl-C was pressed: how the turn ends is all that is shown then. */
  isInterrupted(): boolean;
}

async function show(
  turn: Turn,
  { trestle, session: { sessionId }, context, isInterrupted }: TurnPlace,
  isJson: boolean,
  isAsked: boolean,
): Promise<string> {
  const display = createTurnDisplay(context);
  const notices = createWaitNotices({ trestle, sessionId, isAsked, clock: systemClock, say: display.say });
  try {
    for await (const update of turn) {
      notices.seen(update);
      if (!isJson && !isInterrupted()) display.show(update);
    }
  } finally {
    notices.stop();
  }
  const result = await turn.result;
  if (isJson) context.stdout(`${JSON.stringify(result)}\n`);
  else display.end(result);
  return result.status;
}
