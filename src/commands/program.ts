import { Argument, Command, CommanderError, Help } from 'commander';
import { PROGRAM_VERSION } from '../system/environment.ts';
import { registerAgents } from './agents.ts';
import { registerBackup, registerCopy, registerRestore, registerSecretKey } from './backup.ts';
import { registerChat } from './chat.ts';
import { registerCluster, registerDrain, registerNodes, registerRunner } from './cluster.ts';
import { type CommandContext, CommandExit, describeFailure, EXIT_CODES, EXIT_USAGE, fail } from './command-context.ts';
import { registerConfig, registerDoctor } from './config.ts';
import { registerInit } from './init.ts';
import { registerJobs, registerSchedules } from './jobs-and-schedules.ts';
import { registerKey } from './key.ts';
import { addGlobalFlags } from './load-settings.ts';
import { registerLogin } from './login.ts';
import { registerModels } from './models.ts';
import { registerProxyNode } from './proxy-node.ts';
import { registerRun } from './run.ts';
import { registerAdapter, registerServe, registerStdio, registerTools } from './serve.ts';
import { registerSessions } from './sessions.ts';
import { registerUsage } from './usage.ts';
import { registerUser } from './user.ts';

const EXAMPLES = `
Examples:
  trestle serve                          all services on 127.0.0.1:8787
  trestle serve bridge --listen 127.0.0.1:9000
  trestle run "Why does the build fail?"  run a task with an agent, and show its work
  trestle init                           find keys and agents, write trestle.yaml
  trestle doctor                         check what works here and what does not
  trestle config print --sources         the settings in force, and where each comes from
  trestle backup ./backup-monday

Exit codes:
${EXIT_CODES.map(([code, meaning]) => `  ${String(code).padEnd(3)}  ${meaning}`).join('\n')}`;

/** The whole command line, one file for each topic. What a command needs beyond this is imported when it runs. */
export function buildProgram(context: CommandContext): Command {
  const program = new Command('trestle')
    .description('One program behind your agent app: an agent bridge, a completions API and accounts, at one address.')
    .version(PROGRAM_VERSION, '--version', 'print the version')
    .helpOption('--help', 'show help')
    .helpCommand('help [command]', 'show help for a command')
    .configureHelp({ formatItem: helpLine, minWidthToWrap: MIN_DESCRIPTION })
    .configureOutput({ writeOut: context.stdout, writeErr: context.stderr, getOutHasColors: () => context.color })
    .addHelpText('after', EXAMPLES)
    .exitOverride();
  addGlobalFlags(program);
  refuseServerElsewhere(program, context);
  registerServe(program, context);
  registerInit(program, context);
  registerRun(program, context);
  registerChat(program, context);
  registerAgents(program, context);
  registerSessions(program, context);
  registerJobs(program, context);
  registerLogin(program, context);
  registerSchedules(program, context);
  registerUsage(program, context);
  registerStdio(program, context);
  registerAdapter(program, context);
  registerTools(program, context);
  registerDoctor(program, context);
  registerConfig(program, context);
  registerModels(program, context);
  registerNodes(program, context);
  registerCluster(program, context);
  registerDrain(program, context);
  registerRunner(program, context);
  registerKey(program, context);
  registerUser(program, context);
  registerProxyNode(program, context);
  registerBackup(program, context);
  registerRestore(program, context);
  registerCopy(program, context);
  registerSecretKey(program, context);
  registerCompletion(program, context);
  pointToHelp(program, program.name());
  return program;
}

/** Where less room is left beside the names, descriptions stand below them. Commander would let the terminal break them. */
const MIN_DESCRIPTION = 24;
const MARGINS = 4;

function helpLine(this: Help, term: string, termWidth: number, description: string, helper: Help): string {
  const width = this.helpWidth ?? 80;
  if (description === '' || width - termWidth - MARGINS >= MIN_DESCRIPTION) {
    return Help.prototype.formatItem.call(this, term, termWidth, description, helper);
  }
  return `  ${term}\n${helper.boxWrap(description, width - 6).replace(/^/gm, '      ')}`;
}

/** The commands that talk to the server of `trestle login`. All others work on this machine. */
const ON_SERVER: ReadonlySet<string> = new Set([
  ...['login', 'whoami', 'token', 'run', 'chat'],
  ...['sessions', 'jobs', 'schedules', 'agents', 'usage'],
]);
/** Their subcommands that work on this machine anyway. */
const ON_MACHINE: ReadonlySet<string> = new Set(['agents install', 'agents update', 'agents remove']);

/** Refuses `--server` for commands that ignore it. */
function refuseServerElsewhere(program: Command, context: CommandContext): void {
  program.hook('preAction', (_program, action) => {
    let command = action;
    while (command.parent !== null && command.parent !== program) command = command.parent;
    const name = command === action ? command.name() : `${command.name()} ${action.name()}`;
    if (program.opts<{ readonly server?: string }>().server === undefined) return;
    if (ON_SERVER.has(command.name()) && !ON_MACHINE.has(name)) return;
    fail(context, `${name} works on this machine; --server is for ${[...ON_SERVER].join(', ')}`, EXIT_USAGE);
  });
}

/** Names the help of the command that was used wrongly, and the nearest subcommand where there are some. */
function pointToHelp(command: Command, path: string): void {
  command.showHelpAfterError(`(see: ${path} --help)`);
  const takesOnlyCommands = command.commands.length > 0 && command.registeredArguments.length === 0;
  if (takesOnlyCommands) {
    // Commander would count arguments: "Expected 0 arguments but got 1".
    command.allowExcessArguments().hook('preAction', (_command, action) => {
      if (action === command && command.args.length > 0) (command as Command & UnknownCommand).unknownCommand();
    });
  }
  for (const inner of command.commands) pointToHelp(inner, `${path} ${inner.name()}`);
}

/** What the types of commander leave out: ends with the error for an unknown command, which names the nearest one. */
interface UnknownCommand {
  unknownCommand(): never;
}

/** Runs a command line to its end and returns the exit code. Prints every error as a message, never as a stack. */
export async function runProgram(args: readonly string[], context: CommandContext): Promise<number> {
  const program = buildProgram(context);
  try {
    await program.parseAsync(nameUnknown(program, args), { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommandExit) return error.code;
    // Commander has already said what is wrong, or printed what was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    const { exit, text } = describeFailure(error);
    context.stderr(text);
    return exit;
  }
}

/** Adds the command `help`, which names an unknown command and the nearest known one. Commander's own prints the whole help. */
function nameUnknown(program: Command, args: readonly string[]): readonly string[] {
  const [first, named = '-'] = args;
  if (first !== 'help' || named.startsWith('-')) return args;
  const isKnown = program.commands.some((command) => command.name() === named || command.aliases().includes(named));
  return isKnown ? args : [named];
}

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** `trestle completion SHELL` prints a script that calls the program to get the completions. */
function registerCompletion(program: Command, context: CommandContext): void {
  program
    .command('completion')
    .summary('print a completion script for your shell')
    .description('Prints a script that completes commands and options in bash, zsh or fish.')
    .addArgument(new Argument('<shell>', 'the shell that will run the script').choices(SHELLS))
    .addHelpText('after', '\nExamples:\n  source <(trestle completion bash)\n  trestle completion fish | source')
    .action((shell: (typeof SHELLS)[number]) => context.stdout(`${SCRIPTS[shell]}\n`));
  program
    .command('complete', { hidden: true })
    .argument('[words...]', 'the words typed so far, the last one unfinished')
    .allowUnknownOption()
    .helpOption(false)
    .action((words: readonly string[]) => context.stdout(`${completions(program, words).join('\n')}\n`));
}

/** Returns the completions of the last word. */
function completions(program: Command, words: readonly string[]): readonly string[] {
  const typed = words.at(-1) ?? '';
  let command = program;
  for (const word of words.slice(0, -1)) command = command.commands.find((child) => child.name() === word) ?? command;
  return candidates(program, command).filter((candidate) => candidate.startsWith(typed));
}

function candidates(program: Command, command: Command): readonly string[] {
  const options = new Set([...command.options, ...program.options].flatMap((option) => option.long ?? []));
  const choices = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const commands = command
    .createHelp()
    .visibleCommands(command)
    .map((child) => child.name());
  return [...commands, ...choices, ...options, '--help'];
}

const SCRIPTS = {
  bash: `_trestle() {
  local IFS=$'\\n'
  COMPREPLY=($(trestle complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _trestle trestle`,
  zsh: `#compdef trestle
_trestle() {
  local -a found
  found=(\${(f)"$(trestle complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  compadd -a found
}
compdef _trestle trestle`,
  fish: `complete -c trestle -f -a '(trestle complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'`,
};
