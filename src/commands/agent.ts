import { type Command, InvalidArgumentError } from 'commander';
import type { CommandContext } from './command-context.ts';
import { callFromCommand } from './load-settings.ts';

interface AgentInfo {
  readonly id: string;
  readonly name: string;
  readonly groups: readonly string[];
  readonly configured: boolean;
  readonly hasToken: boolean;
}

interface CreateOptions {
  readonly name?: string;
  readonly groups?: readonly string[];
  readonly address?: string;
  readonly port?: number;
}

/** `trestle agent create|list|revoke`. */
export function registerAgent(program: Command, context: CommandContext): void {
  const agent = program
    .command('agent')
    .summary('register, list and revoke agents of proxy nodes')
    .description(
      'Manages the agents of proxy nodes that report to the accounts service, whether the server runs or not.',
    );
  registerCreate(agent, context);
  registerList(agent, context);
  registerRevoke(agent, context);
}

function registerCreate(agent: Command, context: CommandContext): void {
  agent
    .command('create')
    .summary('register an agent and print its token, once')
    .description('Registers an agent. Its token is printed this once: only its digest is stored.')
    .argument('<id>', 'id of the agent: node-1')
    .option('--name <name>', 'its name for people')
    .option('--groups <names>', 'groups that it belongs to, separated by commas', readList)
    .option('--address <address>', 'address that clients connect to; the id unless given')
    .option('--port <port>', 'port that clients connect to', readPort)
    .addHelpText(
      'after',
      '\nExamples:\n  trestle agent create node-1\n  trestle agent create node-2 --address n2.example.org',
    )
    .action(async (id: string, given: CreateOptions, command: Command) => {
      const options = command.optsWithGlobals();
      const { name, groups, address, port } = given;
      const params = {
        id,
        ...(name !== undefined && { name }),
        ...(groups !== undefined && { groups }),
        ...(address !== undefined && { address }),
        ...(port !== undefined && { port }),
      };
      const made = (await ask(options, context, 'agents.create', params)) as { agent: AgentInfo; token: string };
      if (options.json === true) context.stdout(`${JSON.stringify(made)}\n`);
      else context.stdout(`${made.token}\n\n  ${made.agent.id}. Keep the token: it is not shown again.\n`);
    });
}

function registerList(agent: Command, context: CommandContext): void {
  agent
    .command('list')
    .summary('list the agents')
    .description('Lists the agents, those of the settings and those that were registered.')
    .addHelpText('after', '\nExamples:\n  trestle agent list')
    .action(async (_given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const listed = (await ask(options, context, 'agents.list', {})) as { agents: readonly AgentInfo[] };
      if (options.json === true) context.stdout(`${JSON.stringify(listed)}\n`);
      else if (listed.agents.length === 0) context.stdout('No agents. Register one with: trestle agent create <id>\n');
      else context.stdout(listed.agents.map(agentLine).join(''));
    });
}

function registerRevoke(agent: Command, context: CommandContext): void {
  agent
    .command('revoke')
    .summary('remove an agent: its token stops working at once')
    .description('Removes an agent: its token stops working at once.')
    .argument('<id>', 'id of the agent')
    .addHelpText('after', '\nExamples:\n  trestle agent revoke node-1')
    .action(async (id: string, _given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      await ask(options, context, 'agents.revoke', { id });
      context.stdout(options.json === true ? `${JSON.stringify({ id, revoked: true })}\n` : `Revoked ${id}.\n`);
    });
}

function ask(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
  method: string,
  params: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  return callFromCommand(options, context, 'accounts', method, params);
}

function agentLine({ id, name, groups, configured, hasToken }: AgentInfo): string {
  const notes = [
    groups.length > 0 && `groups ${groups.join(', ')}`,
    configured && 'from the settings',
    !hasToken && 'no token yet',
  ].filter((note) => note !== false);
  return `  ${id}  ${name}${notes.length === 0 ? '' : `  (${notes.join('; ')})`}\n`;
}

function readList(text: string): readonly string[] {
  return text.split(',').map((each) => each.trim());
}

function readPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('Give a port from 1 to 65535.');
  return port;
}
