import { type Command, InvalidArgumentError } from 'commander';
import type { ControlResult } from '../system/controls.ts';
import { type CommandContext, print } from './command-context.ts';
import { callFromCommand, commaList } from './load-settings.ts';

type ProxyNodeInfo = ControlResult<'accounts', 'agents.create'>['agent'];

interface CreateOptions {
  readonly name?: string;
  readonly groups?: readonly string[];
  readonly address?: string;
  readonly port?: number;
}

/** `trestle proxy-node create|list|revoke`. */
export function registerProxyNode(program: Command, context: CommandContext): void {
  const node = program
    .command('proxy-node')
    // The name in 0.1.0, where an agent was two things.
    .alias('agent')
    .summary('register, list and revoke proxy nodes')
    .description('Manages the proxy nodes that report to the accounts service, whether the server runs or not.');
  registerCreate(node, context);
  registerList(node, context);
  registerRevoke(node, context);
}

function registerCreate(node: Command, context: CommandContext): void {
  node
    .command('create')
    .summary('register a proxy node and print its token, once')
    .description(
      'Registers a proxy node and prints its token. The token is not shown again: only its digest is stored.',
    )
    .argument('<id>', 'id of the proxy node: node-1')
    .option('--name <name>', 'name to show')
    .option('--groups <names>', 'groups of the node, separated by commas', commaList)
    .option('--address <address>', 'address that clients connect to (default: the id)')
    .option('--port <port>', 'port that clients connect to', readPort)
    .addHelpText(
      'after',
      '\nExamples:\n  trestle proxy-node create node-1\n  trestle proxy-node create node-2 --address n2.example.org',
    )
    .action(async (id: string, given: CreateOptions, command: Command) => {
      const { name, groups, address, port } = given;
      const params = {
        id,
        ...(name !== undefined && { name }),
        ...(groups !== undefined && { groups }),
        ...(address !== undefined && { address }),
        ...(port !== undefined && { port }),
      };
      const made = await callFromCommand(command, context, 'accounts', 'agents.create', params);
      print(command, context, made, `${made.token}\n\n  ${made.agent.id}. Keep the token: it is not shown again.\n`);
    });
}

function registerList(node: Command, context: CommandContext): void {
  node
    .command('list')
    .summary('list the proxy nodes')
    .description('Lists the proxy nodes, both registered ones and those from the settings.')
    .addHelpText('after', '\nExamples:\n  trestle proxy-node list')
    .action(async (_given: unknown, command: Command) => {
      const listed = await callFromCommand(command, context, 'accounts', 'agents.list', {});
      const lines = listed.agents.map(nodeLine).join('');
      print(command, context, listed, lines || 'No proxy nodes. Register one with: trestle proxy-node create <id>\n');
    });
}

function registerRevoke(node: Command, context: CommandContext): void {
  node
    .command('revoke')
    .summary('remove a proxy node; its token stops working immediately')
    .description('Removes a proxy node. Its token stops working immediately.')
    .argument('<id>', 'id of the proxy node')
    .addHelpText('after', '\nExamples:\n  trestle proxy-node revoke node-1')
    .action(async (id: string, _given: unknown, command: Command) => {
      await callFromCommand(command, context, 'accounts', 'agents.revoke', { id });
      print(command, context, { id, revoked: true }, `Revoked ${id}.\n`);
    });
}

function nodeLine({ id, name, groups, configured, hasToken }: ProxyNodeInfo): string {
  const notes = [
    groups.length > 0 && `groups ${groups.join(', ')}`,
    configured && 'from the settings',
    !hasToken && 'no token yet',
  ].filter((note) => note !== false);
  return `  ${id}  ${name}${notes.length === 0 ? '' : `  (${notes.join('; ')})`}\n`;
}

function readPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('Give a port from 1 to 65535.');
  return port;
}
