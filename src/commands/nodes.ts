import type { Command } from 'commander';
import type { ControlResult } from '../system/controls.ts';
import { type CommandContext, print } from './command-context.ts';
import { callFromCommand } from './load-settings.ts';

type NodeList = ControlResult<'bridge', 'nodes.list'>;
type Explanation = ControlResult<'bridge', 'nodes.explain'>;

/** `trestle nodes` and `trestle nodes explain METHOD`. */
export function registerNodes(program: Command, context: CommandContext): void {
  const nodes = program
    .command('nodes')
    .summary('list the bridges that calls are forwarded to')
    .description(
      'Lists the nodes that this bridge knows, how calls reach each one, and whether it was reachable recently.',
    )
    .addHelpText('after', '\nExamples:\n  trestle nodes\n  trestle nodes explain session.start')
    .action(async (_given: unknown, command: Command) => {
      const list = await callFromCommand(command, context, 'bridge', 'nodes.list', {});
      print(command, context, list, listText(list));
    });
  nodes
    .command('explain')
    .summary('show where a call would go, and why')
    .description('Shows which node would get a call of a method now, and why, without making the call.')
    .argument('<method>', 'a method, such as session.start')
    .option('--session <id>', 'for a call about this session')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle nodes explain session.start\n  trestle nodes explain session.message --session s1 --json',
    )
    .action(async (method: string, { session }: { readonly session?: string }, command: Command) => {
      const params = { method, ...(session !== undefined && { session_id: session }) };
      const found = await callFromCommand(command, context, 'bridge', 'nodes.explain', params);
      print(command, context, found, explanationText(found));
    });
}

function listText({ local_node_id: local, hop_limit: limit, default_action: action, nodes }: NodeList): string {
  const width = Math.max(4, ...nodes.map(({ id }) => id.length));
  const lines = nodes.map(({ id, role, zone, endpoint, capabilities, next_hop: hop, state }) => {
    const facts = [
      role && `role ${role}`,
      zone && `zone ${zone}`,
      capabilities.length > 0 && `can ${capabilities.join(', ')}`,
      hop !== id && `by way of ${hop}`,
      state === 'up' ? '' : `down: ${state}`,
    ].filter((fact) => typeof fact === 'string' && fact !== '');
    return `  ${id.padEnd(width)}  ${endpoint}${facts.length === 0 ? '' : `  (${facts.join('; ')})`}`;
  });
  const self = local === '' ? 'This node has no id (distributed.local_node_id).' : `This node is "${local}".`;
  return `${[self, `Hop limit ${limit}; calls that no rule is about: ${action}.`, ...lines].join('\n')}\n`;
}

function explanationText({ method, action, reason, code, candidates }: Explanation): string {
  if (action === 'local') return `${method}: runs here, because ${reason}.\n`;
  if (action === 'refuse') return `${method}: is refused (${code}), because ${reason}.\n`;
  const [first, ...others] = candidates.map(({ node_id: id, next_hop: hop, endpoint }) =>
    id === hop ? `node "${id}" at ${endpoint}` : `node "${id}" by way of "${hop}" at ${endpoint}`,
  );
  const then = others.length === 0 ? '' : `; should it not take the call, to ${others.join(', then to ')}`;
  return `${method}: goes to ${first}, because ${reason}${then}.\n`;
}
