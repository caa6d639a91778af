import { once } from 'node:events';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { SERVICE_NAMES, type ServiceName } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';
import { createStreamsLogger, loadSettings } from './load-settings.ts';
import { loginFile } from './server-login.ts';

const MAX_WORKERS = 64;

/** `trestle serve [service]`. */
export function registerServe(program: Command, context: CommandContext): void {
  program
    .command('serve')
    .summary('run the server')
    .description('Runs all services on one address, or one service alone, until it is stopped.')
    .addArgument(new Argument('[service]', 'run only this service').choices(SERVICE_NAMES))
    .addHelpText(
      'after',
      `
Examples:
  trestle serve
  trestle serve completions              on 127.0.0.1:4000
  BRIDGE_AUTH_TOKEN=... trestle serve bridge --listen 0.0.0.0:8787

  trestle serve --workers 4              all cores of this machine, on PostgreSQL

SIGTERM and SIGINT stop it when running work is done (after at most 30 s); a second signal stops it immediately. SIGHUP reads tokens and keys again.
With --workers, SIGUSR2 replaces the workers one after the other.`,
    )
    .option('--workers <count>', 'number of processes that serve the address together; needs PostgreSQL', readWorkers)
    .addOption(
      new Option('--worker <slot>', 'the place of this process among the workers').hideHelp().argParser(Number),
    )
    .action(async (service: ServiceName | undefined, { workers = 1, worker }: ServeFlags, command: Command) => {
      const options = command.optsWithGlobals();
      if (workers > 1 && worker === undefined) {
        const { serveWithWorkers } = await import('./workers.ts');
        return serveWithWorkers(workers, service, options, context);
      }
      const { serve } = await import('./serve-until-stopped.ts');
      const names = service === undefined ? SERVICE_NAMES : [service];
      if (worker === undefined) return serve(names, options, context);
      const { linkToParent } = await import('./workers.ts');
      return serve(names, options, context, undefined, { slot: worker, link: linkToParent });
    });
}

interface ServeFlags {
  readonly workers?: number;
  readonly worker?: number;
}

function readWorkers(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1 && count <= MAX_WORKERS) return count;
  throw new InvalidArgumentError(`Give a number from 1 to ${MAX_WORKERS}.`);
}

/** `trestle stdio`. */
export function registerStdio(program: Command, context: CommandContext): void {
  program
    .command('stdio')
    .summary('serve one app or editor over standard streams')
    .description(
      'Serves the bridge on standard input and output, one JSON message per line or behind Content-Length headers: its ' +
        'own methods and the Agent Client Protocol, so that an editor can use any agent. Logs go to standard error.',
    )
    .option('--agent <id>', 'agent of new sessions (default: chosen by routing)')
    .addHelpText(
      'after',
      `
Examples:
  trestle stdio --agent codex

In an editor that speaks the Agent Client Protocol, add a custom agent:
  { "command": "trestle", "args": ["stdio"] }`,
    )
    .action(async ({ agent = '' }: { readonly agent?: string }, command: Command) => {
      await serveStdio(agent, command.optsWithGlobals(), context);
    });
}

/** Serves the standard streams until the other side closes them, or a signal comes. */
async function serveStdio(
  agent: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { startStdio } = await import('../system/start-stdio.ts');
  const { settings, file, warnings } = await loadSettings(options, context);
  const logger = createStreamsLogger(settings, context);
  for (const warning of warnings) logger.warn({}, warning);
  const { environment, homeDirectory } = context;
  const { stdin: input, stdout: output } = process;
  const privateFiles = [...(file === undefined ? [] : [file]), loginFile(context)];
  const place = { environment, homeDirectory, privateFiles };
  const system = await startStdio({ settings, agent, input, output, logger, ...place });
  await Promise.race([system.ended, once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  await system.stop();
}

interface ToolsFlags {
  readonly url?: string;
  readonly completionsUrl?: string;
}

/** `trestle tools`. */
export function registerTools(program: Command, context: CommandContext): void {
  program
    .command('tools')
    .summary('offer the running server to an agent, as MCP tools')
    .description(
      'An MCP server on standard input and output, for agents: chat, ask_agent, submit_job, get_job and send_message. It ' +
        'calls a running server with the tokens of the settings (BRIDGE_AUTH_TOKEN, COMPLETIONS_MASTER_KEY).',
    )
    .option('--url <url>', 'address of the server (default: the address in the settings)', readUrl)
    .option('--completions-url <url>', 'address of its completions service, if that runs elsewhere', readUrl)
    .addHelpText(
      'after',
      `
Examples:
  trestle tools --url http://127.0.0.1:8787

In the settings of an agent that supports MCP servers, add:
  { "mcpServers": { "trestle": { "command": "trestle", "args": ["tools"] } } }`,
    )
    .action(async (flags: ToolsFlags, command: Command) => {
      await serveToolsFromCommand(flags.url, flags.completionsUrl, command.optsWithGlobals(), context);
    });
}

function readUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return text;
  throw new InvalidArgumentError('Give a URL such as http://127.0.0.1:8787.');
}

/** Serves the standard streams until the agent closes them, or a signal comes. */
async function serveToolsFromCommand(
  url: string | undefined,
  completionsUrl: string | undefined,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { startTools } = await import('../system/start-tools.ts');
  const { settings } = await loadSettings(options, context);
  const logger = createStreamsLogger(settings, context);
  const { stdin: input, stdout: output } = process;
  const served = startTools({ settings, url, completionsUrl, input, output, logger });
  const told = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]).then(() => void input.destroy());
  await Promise.race([served, told.then(() => served)]);
}

/** `trestle adapter <agent>`. */
export function registerAdapter(program: Command, context: CommandContext): void {
  program
    .command('adapter')
    .summary('serve one agent to a bridge on another host')
    .description(
      'Serves one agent that speaks the Agent Client Protocol, for a bridge whose settings name this address as the url ' +
        'of that agent. It keeps its data in its own folder, so it can run next to a server.',
    )
    .argument('<agent>', 'id of the agent: opencode, gemini, or one of agents.custom')
    .addHelpText(
      'after',
      `
Examples:
  trestle adapter opencode               on 127.0.0.1:8788
  trestle adapter gemini                 on 127.0.0.1:8789
  BRIDGE_AUTH_TOKEN=... trestle adapter opencode --listen 10.0.0.7:8788

In the trestle.yaml of the bridge, add:
  agents: { opencode: { url: "http://10.0.0.7:8788", token: "..." } }`,
    )
    .action(async (agent: string, _options: unknown, command: Command) => {
      const { serve } = await import('./serve-until-stopped.ts');
      const { ADAPTER_METHODS, adapterSettings } = await import('../system/settings.ts');
      const { environment, homeDirectory } = context;
      const place = { homeDirectory, xdgDataHome: environment.XDG_DATA_HOME };
      await serve(['bridge'], command.optsWithGlobals(), context, {
        narrow: (settings) => adapterSettings(settings, agent, place),
        bridgeMethods: { names: ADAPTER_METHODS },
      });
    });
}
