import { Command, CommanderError } from 'commander';
import { PROGRAM_VERSION } from '../system/release.ts';
import { registerAdapter } from './adapter.ts';
import { registerAgent } from './agent.ts';
import { registerBackup } from './backup.ts';
import type { CommandContext } from './command-context.ts';
import { CommandExit } from './command-exit.ts';
import { describeFailure, EXIT_USAGE } from './command-failure.ts';
import { registerCompletion } from './completion.ts';
import { registerConfig } from './config.ts';
import { registerCopy } from './copy.ts';
import { registerDoctor } from './doctor.ts';
import { registerKey } from './key.ts';
import { registerModels } from './models.ts';
import { registerNodes } from './nodes.ts';
import { registerRestore } from './restore.ts';
import { registerSecretKey } from './secret-key.ts';
import { registerServe } from './serve.ts';
import { addGlobalFlags } from './setting-flags.ts';
import { registerStdio } from './stdio.ts';
import { registerTools } from './tools.ts';
import { registerUser } from './user.ts';

const EXAMPLES = `
Examples:
  trestle serve                          all services on 127.0.0.1:8787
  trestle serve bridge --listen 127.0.0.1:9000
  trestle doctor                         what works here and what does not
  trestle config print --sources         the settings in force, and where each comes from
  trestle backup ./backup-monday

Exit codes: 0 done, 1 failed, 2 wrong usage, 78 wrong configuration.`;

/** The whole command line, one file per command. What a command needs beyond this is imported when it runs. */
export function buildProgram(context: CommandContext): Command {
  const program = new Command('trestle')
    .description('One program behind your agent app: an agent bridge, a completions API and accounts, at one address.')
    .version(PROGRAM_VERSION, '--version', 'print the version')
    .helpOption('--help', 'show help')
    .helpCommand('help [command]', 'show help for a command')
    .configureOutput({ writeOut: context.stdout, writeErr: context.stderr, getOutHasColors: () => context.color })
    .addHelpText('after', EXAMPLES)
    .exitOverride();
  addGlobalFlags(program);
  registerServe(program, context);
  registerStdio(program, context);
  registerAdapter(program, context);
  registerTools(program, context);
  registerDoctor(program, context);
  registerConfig(program, context);
  registerModels(program, context);
  registerNodes(program, context);
  registerKey(program, context);
  registerUser(program, context);
  registerAgent(program, context);
  registerBackup(program, context);
  registerRestore(program, context);
  registerCopy(program, context);
  registerSecretKey(program, context);
  registerCompletion(program, context);
  pointToHelp(program, program.name());
  return program;
}

/** Whoever used a command wrongly is sent to the help of that very command. */
function pointToHelp(command: Command, path: string): void {
  command.showHelpAfterError(`(see: ${path} --help)`);
  for (const inner of command.commands) pointToHelp(inner, `${path} ${inner.name()}`);
}

/** Runs a command line to its end and answers with the exit code. Whatever goes wrong is said in words, never as a stack. */
export async function runProgram(args: readonly string[], context: CommandContext): Promise<number> {
  const program = buildProgram(context);
  try {
    await program.parseAsync(args, { from: 'user' });
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
