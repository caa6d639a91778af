import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import { systemClock } from '../platform/clock/clock.ts';
import { type Configuration, type Flags, loadConfiguration } from '../platform/config/load-configuration.ts';
import { secretValues, settingEntries } from '../platform/config/setting-declaration.ts';
import { createLogger, type Logger, type LoggerOptions } from '../platform/log/logger.ts';
import type { ControlMethod, ControlResult, ServerAccess } from '../system/controls.ts';
import { dataDirectory, type ServiceName, type Settings, settingsDeclaration } from '../system/settings.ts';
import {
  type CommandContext,
  EXIT_USAGE,
  exitOfRefusal,
  fail,
  type GivenCommand,
  inTerminalWords,
  type Options,
} from './command-context.ts';
import { findLogin, hostOf, loginFile, refuseEnded } from './server-login.ts';

/** The settings for a command, from its options (`command.optsWithGlobals()`). Throws a `ConfigurationError`. */
export function loadSettings(
  options: Options,
  { environment, workingDirectory, homeDirectory }: CommandContext,
): Promise<Configuration<Settings>> {
  return loadConfiguration({
    declaration: settingsDeclaration,
    configFile: typeof options.config === 'string' ? options.config : undefined,
    environment,
    flags: flagsFromOptions(options),
    homeDirectory,
    workingDirectory,
  });
}

/** The settings for a command, and what else a part of the system needs to find the data that they name. */
export async function commandAccess(options: Options, context: CommandContext) {
  const { environment, homeDirectory } = context;
  const say = (text: string) => context.stderr(`trestle: ${text}\n`);
  return { ...(await loadSettings(options, context)), environment, homeDirectory, clock: systemClock, say };
}

const ENTRIES = settingEntries(settingsDeclaration.schema).flatMap(({ setting }) =>
  setting.shape === 'leaf' && setting.flag !== undefined ? [{ ...setting, flag: setting.flag }] : [],
);

/** Adds the flags that every command takes: those of the declared settings, `--config` and `--json`. */
export function addGlobalFlags(program: Command): void {
  program.option('--config <path>', `file to read instead of ./${settingsDeclaration.fileName}`);
  for (const { flag, type, description } of ENTRIES) {
    const argument = type === 'true or false' ? '' : ` <${/^[\w:-]+$/.test(type) ? type : 'value'}>`;
    program.option(flag + argument, description.replaceAll('`', ''));
  }
  program.option(
    '--server <url>',
    'server to use instead of the one of trestle login; local: the server on this machine',
  );
  program.option('--json', 'print one JSON object');
}

/** Picks the settings out of a command's options, by flag. */
export function flagsFromOptions(options: Options): Flags {
  return Object.fromEntries(
    ENTRIES.map(({ flag }) => {
      const given = options[optionName(flag)];
      return [flag, typeof given === 'string' || typeof given === 'boolean' ? given : undefined];
    }),
  );
}

/** `--data-dir` is `dataDir` among a command's options. */
function optionName(flag: string): string {
  return flag.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** The log of a command whose standard output belongs to a protocol. */
export function createStreamsLogger(settings: Settings, context: CommandContext): Logger {
  return createCommandLogger(settings, context, {
    level: settings.log.level,
    format: settings.log.format === 'text' ? 'pretty' : 'json',
  });
}

/** Writes to standard error. The secrets are collected once: the log compares every line with them. */
export function createCommandLogger(
  settings: Settings,
  context: Pick<CommandContext, 'stderr'>,
  form: Pick<LoggerOptions, 'level' | 'format'>,
): Logger {
  const secrets = secretValues(settingsDeclaration.schema, settings);
  return createLogger({
    ...form,
    output: { write: context.stderr, flush: () => undefined },
    clock: systemClock,
    secrets: () => secrets,
  });
}

/** Calls a service for a command, whether its server runs or not. */
export async function callFromCommand<Name extends ServiceName, Method extends ControlMethod<Name>>(
  command: GivenCommand,
  context: CommandContext,
  name: Name,
  method: Method,
  params: Readonly<Record<string, unknown>>,
): Promise<ControlResult<Name, Method>> {
  const access = await commandAccess(command.optsWithGlobals(), context);
  const { callControl } = await import('../system/controls.ts');
  const logger = createCommandLogger(access.settings, context, { level: 'warn', format: 'pretty' });
  return callControl({ ...access, logger }, name, method, params);
}

export interface ConnectedServer extends ServerAccess {
  /** Whether the server runs in this process, and ends with the command. */
  readonly isOwn: boolean;
  /** Whether tasks may work in the folder of the command. A person has a folder of their own on the server. */
  readonly sharesFiles: boolean;
  close(): Promise<void>;
}

/**
 * The server of the login, if there is one; otherwise the server that runs on this machine; where none does, one in this
 * process, for as long as the command runs.
 */
async function connectServer(options: Options, context: CommandContext, needs: Needs): Promise<ConnectedServer> {
  const { environment, homeDirectory } = context;
  const known = (await findElsewhere(options, context)) ?? (await findRunning(options, context));
  if (known !== undefined) return known;
  const { settings, file } = await loadSettings(options, context);
  if (needs === 'data') {
    const { existingDataFiles } = await import('../system/stores.ts');
    await existingDataFiles(await commandAccess(options, context));
  }
  const { startSystem } = await import('../system/start-system.ts');
  const system = await startSystem({
    settings: { ...settings, listen: '127.0.0.1:0' },
    services: ['bridge', 'completions'],
    environment,
    homeDirectory,
    privatePaths: {
      folders: [dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME)],
      files: [...(file === undefined ? [] : [file]), loginFile(context)],
    },
    logger: createCommandLogger(settings, context, { level: 'error', format: 'pretty' }),
    requestLines: undefined,
  });
  const { url } = system.summary();
  const close = () => system.stop();
  return { url, token: settings.bridge.auth_token, isOwn: true, sharesFiles: true, close };
}

/** The server of the login; undefined when there is no login. */
async function findElsewhere(options: Options, context: CommandContext): Promise<ConnectedServer | undefined> {
  const login = await findLogin(options, context);
  if (login === undefined && options.team !== undefined) {
    fail(context, 'working for a team needs a login; log in with: trestle login <address>', EXIT_USAGE);
  }
  if (login === undefined) return undefined;
  context.stderr(`on ${hostOf(login.url)}\n`);
  return { ...login, isOwn: false, sharesFiles: false, close: async () => undefined };
}

/** The server that runs on the data directory of this machine; undefined when none does. */
async function findRunning(options: Options, context: CommandContext): Promise<ConnectedServer | undefined> {
  const { findServer } = await import('../system/controls.ts');
  const found = await findServer(await commandAccess(options, context));
  return found && { ...found, isOwn: false, sharesFiles: true, close: async () => undefined };
}

type ServerWork<Result> = (trestle: TrestleClient, server: ConnectedServer) => Promise<Result>;

/** As `withServer`, and undefined where there is neither a login nor a server that runs on this machine. */
export async function withKnownServer<Result>(
  options: Options,
  context: CommandContext,
  work: ServerWork<Result>,
): Promise<Result | undefined> {
  const server = (await findElsewhere(options, context)) ?? (await findRunning(options, context));
  return server && useServer(server, options, context, work);
}

/** What a command needs: only a server, or one with `data`: it is refused where nothing was stored yet. */
export type Needs = 'server' | 'data';

/** Calls `work` with a client of that server. What the server refuses is printed, and ends the command with 1. */
export async function withServer(
  options: Options,
  context: CommandContext,
  work: ServerWork<void>,
  needs: Needs = 'server',
): Promise<void> {
  await useServer(await connectServer(options, context, needs), options, context, work);
}

async function useServer<Result>(
  server: ConnectedServer,
  options: Options,
  context: CommandContext,
  work: ServerWork<Result>,
): Promise<Result> {
  // Only commands that talk to a server need the client, and every server loads this file.
  const { createTrestleClient, TrestleError } = await import('../client/trestle-client.ts');
  const { team } = options;
  const trestle = createTrestleClient({
    url: server.url,
    token: server.token,
    ...(typeof team === 'string' && { team }),
  });
  try {
    return await work(trestle, server);
  } catch (error) {
    if (!(error instanceof TrestleError)) throw error;
    if (error.code === 'UNAUTHORIZED' && (await findLogin(options, context)) !== undefined) {
      refuseEnded(server.url, context);
    }
    const { printable } = await import('./turn-display.ts');
    const exit = exitOfRefusal(error.code);
    const code = exit === EXIT_USAGE ? '' : ` (${error.code})`;
    return fail(context, `${printable(inTerminalWords(error.message))}${code}`, exit);
  } finally {
    trestle.close();
    await server.close();
  }
}

/** Lets a command, and its subcommands, work for a team. */
export function withTeamOption(command: Command): Command {
  return command.option('--team <id>', 'work for this team, on the server of trestle login');
}

/** Reads the value of an option that takes several: `a, b`. */
export function commaList(text: string): readonly string[] {
  return text.split(',').map((each) => each.trim());
}
