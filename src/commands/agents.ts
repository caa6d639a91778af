import type { Command } from 'commander';
import type { AgentLine, AgentPrograms } from '../system/agent-programs.ts';
import { type CommandContext, CommandExit, EXIT_FAILED, type Options, print } from './command-context.ts';
import { commandAccess, withKnownServer, withServer } from './load-settings.ts';
import { printable } from './turn-display.ts';

/** `trestle agents`, with `install`, `update`, `remove`, `test` and `login`. */
export function registerAgents(program: Command, context: CommandContext): void {
  const agents = program
    .command('agents')
    .summary('list, install, update, remove, try and log in to agents')
    .description(
      'Lists the agents and their state. Asks the server of trestle login or the server running on this machine; without a server, starts each agent to check it. Agents installed with this command are kept in the data directory, in the versions that this release was tested with.',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  trestle agents\n  trestle agents install opencode claude\n  trestle agents test opencode',
    )
    .action(async (_given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const served = await withKnownServer(options, context, async (trestle, { sharesFiles }) => ({
        agents: await trestle.agents.list(),
        isHere: sharesFiles,
      }));
      const lines = await (await open(options, context)).list(served?.agents, served?.isHere);
      print(command, context, { agents: lines }, listText(lines));
    });
  agents
    .command('install')
    .description('Installs agents with npm, in exact versions and without install scripts.')
    .argument('<names...>', 'ids of agents')
    .addHelpText('after', '\nExamples:\n  trestle agents install opencode claude')
    .action((names: readonly string[], _given: unknown, command: Command) =>
      installAll(names, command.optsWithGlobals(), context),
    );
  agents
    .command('update')
    .description('Updates the agents that were installed with this command to the versions of this release.')
    .argument('[names...]', 'ids of agents (default: all installed ones)')
    .addHelpText('after', '\nExamples:\n  trestle agents update\n  trestle agents update opencode')
    .action(async (names: readonly string[], _given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const known = await (await open(options, context)).outdated();
      const outdated = known.filter((id) => names.length === 0 || names.includes(id));
      if (outdated.length === 0) context.stdout('All installed agents are up to date.\n');
      await installAll(outdated, options, context);
    });
  agents
    .command('remove')
    .description('Removes agents that were installed with this command.')
    .argument('<names...>', 'ids of agents')
    .addHelpText('after', '\nExamples:\n  trestle agents remove opencode')
    .action(async (names: readonly string[], _given: unknown, command: Command) => {
      const programs = await open(command.optsWithGlobals(), context);
      const removed: string[] = [];
      for (const name of names) if (await programs.remove(name)) removed.push(name);
      const lines = names.map((name) =>
        removed.includes(name) ? `Removed ${name}.\n` : `${name} was not installed with trestle agents install.\n`,
      );
      print(command, context, { removed }, lines.join(''));
    });
  agents
    .command('test')
    .description(
      'Runs one turn ("Say OK") with an agent, and prints how long it took. Exits with 1 when the turn failed.',
    )
    .argument('<name>', 'the id of the agent')
    .addHelpText('after', '\nExamples:\n  trestle agents test builtin\n  trestle agents test opencode --json')
    .action((name: string, _given: unknown, command: Command) => tryAgent(name, command.optsWithGlobals(), context));
  agents
    .command('login')
    .description(
      'Logs in to an agent if it offers a login that needs no terminal; otherwise prints the command to run. Exits with 1 unless the agent is ready to use afterwards.',
    )
    .argument('<name>', 'the id of the agent')
    .option('--method <id>', 'the login method, one of those that the agent offers')
    .addHelpText('after', '\nExamples:\n  trestle agents login opencode')
    .action((name: string, _given: unknown, command: Command) => logIn(name, command.optsWithGlobals(), context));
}

async function open(options: Options, context: CommandContext): Promise<AgentPrograms> {
  const { openAgentPrograms } = await import('../system/agent-programs.ts');
  return openAgentPrograms(await commandAccess(options, context));
}

function listText(lines: readonly AgentLine[]): string {
  const width = Math.max(...lines.map(({ id }) => id.length));
  const text = lines.map(({ id, state, text: what, installed, offered }) => {
    const ours =
      installed === undefined
        ? ''
        : `  (installed ${installed}${installed === offered ? '' : `, this release offers ${offered}`})`;
    return `  ${state === 'ok' ? 'ok  ' : '-   '}  ${id.padEnd(width)}  ${printable(what)}${ours}\n`;
  });
  return text.join('');
}

async function installAll(names: readonly string[], options: Options, context: CommandContext): Promise<void> {
  const programs = await open(options, context);
  for (const name of names) {
    context.stderr(`Installing ${name} ...\n`);
    const version = await programs.install(name, context.stderr);
    context.stdout(`Installed ${name} ${version}.\n`);
  }
  if (names.length > 0)
    context.stderr('A running server offers agents of its catalog within minutes, and other agents after a restart.\n');
}

function tryAgent(name: string, options: Options, context: CommandContext): Promise<void> {
  return withServer(options, context, async (trestle) => {
    const { providerId: agent, ...result } = await trestle.agents.test(name);
    const { status, error, code, firstMs, durationMs } = result;
    if (options.json === true) {
      context.stdout(`${JSON.stringify({ agent, ...result })}\n`);
    } else if (status === 'completed') {
      context.stdout(`ok  ${name}: first text after ${firstMs} ms, ${durationMs} ms in all\n`);
    } else {
      context.stderr(`trestle: ${name}: ${printable(error || status)}${code === '' ? '' : ` (${code})`}\n`);
    }
    if (status !== 'completed') throw new CommandExit(EXIT_FAILED);
  });
}

function logIn(name: string, options: Options, context: CommandContext): Promise<void> {
  return withServer(options, context, async (trestle) => {
    const { providerId: agent, ...result } = await trestle.agents.login(
      name,
      typeof options.method === 'string' ? { methodId: options.method } : {},
    );
    const { loggedIn, methods, text } = result;
    if (options.json === true) {
      context.stdout(`${JSON.stringify({ agent, ...result })}\n`);
    } else if (loggedIn) {
      context.stdout(`ok  ${name}: ${printable(text)}\n`);
    } else {
      const offered = methods.map(
        ({ id, name: title, terminal }) => `  ${id}  ${title}${terminal ? ' (in a terminal)' : ''}\n`,
      );
      context.stderr(`trestle: ${name}: ${printable(text)}\n${offered.map(printable).join('')}`);
    }
    if (!loggedIn) throw new CommandExit(EXIT_FAILED);
  });
}
