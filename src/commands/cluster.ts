import { hostname } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { systemClock } from '../platform/clock/clock.ts';
import { systemRandomness } from '../platform/clock/randomness.ts';
import { createToken } from '../platform/secrets/tokens.ts';
import type { ControlResult } from '../system/controls.ts';
import { PROGRAM_VERSION } from '../system/environment.ts';
import { type CommandContext, CommandExit, EXIT_CONFIGURATION, EXIT_USAGE, fail, print } from './command-context.ts';
import { callFromCommand, commaList, commandAccess } from './load-settings.ts';
import { table } from './sessions.ts';
import { printable } from './turn-display.ts';

type Listed = Awaited<ReturnType<typeof import('../system/cluster.ts')['readInstances']>>['instances'];
type NodeList = ControlResult<'bridge', 'nodes.list'>;
type Explanation = ControlResult<'bridge', 'nodes.explain'>;
type ListedRunner = ControlResult<'bridge', 'runners.list'>['runners'][number];

/** A clock that is further away than this is named. */
const MAX_DIFFERENCE_MS = 5_000;

/** `trestle cluster`. */
export function registerCluster(program: Command, context: CommandContext): void {
  program
    .command('cluster')
    .summary('list the instances that share the database')
    .description(
      'Lists the instances that share the PostgreSQL database: version, address, state, time left on the lease, how far the ' +
        'clock is ahead of that of the database, sessions at work, WebSockets, and a digest of the settings that must agree. ' +
        'Below them are the runners.',
    )
    .addHelpText('after', '\nExamples:\n  trestle cluster\n  trestle cluster --json')
    .action(async (_given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { readInstances } = await import('../system/cluster.ts');
      const { instances, runners } = await readInstances(access);
      const below = runners.length === 0 ? '' : `\n${runnersText(runners)}`;
      print(command, context, { instances, runners }, `${clusterText(instances)}${below}`);
    });
}

/** `trestle drain INSTANCE`. */
export function registerDrain(program: Command, context: CommandContext): void {
  program
    .command('drain')
    .summary('let an instance finish its work and stop')
    .description(
      'Stops an instance as SIGTERM does, from any machine that reaches the PostgreSQL database, and waits until it has stopped: the ' +
        'instance reports that it is not ready, serves everything for cluster.notice, closes its WebSockets, and gives its turns cluster.drain.',
    )
    .argument('<instance>', 'id of an instance, from trestle cluster')
    .addHelpText('after', '\nExamples:\n  trestle cluster\n  trestle drain ins_01jd2x7k9m4v8q5w3e6r1t0y2z')
    .action(async (id: string, _given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { drainInstance } = await import('../system/cluster.ts');
      await drainInstance(access, id, () => context.stderr(`${printable(id)} is leaving\n`));
      print(command, context, { drained: id }, `${printable(id)} has stopped\n`);
    });
}

function clusterText(instances: Listed): string {
  if (instances.length === 0) return 'No instances are running.\n';
  const heads = ['INSTANCE', 'VERSION', 'ADDRESS', 'STATE', 'SETTINGS', 'LEASE', 'CLOCK', 'SESSIONS', 'SOCKETS'];
  const rows = instances.map((one) => [
    one.id,
    printable(one.version),
    printable(one.address),
    one.state,
    one.settingsDigest || '-',
    seconds(one.leaseMs),
    differenceText(one.clockDifferenceMs),
    String(one.sessions),
    String(one.sockets),
  ]);
  const remarks = remarksAbout(instances).map((remark) => `  ${remark}\n`);
  return `${table([heads, ...rows], heads.indexOf('LEASE'))}${remarks.length === 0 ? '' : `\n${remarks.join('')}`}`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function differenceText(ms: number): string {
  // Less than half of a tenth has no sign that could be read: `+0.0 s`.
  const tenths = Math.round(ms / 100) || 0;
  return `${tenths < 0 ? '' : '+'}${seconds(tenths * 100)}`;
}

/** What an operator has to do something about. */
function remarksAbout(instances: Listed): readonly string[] {
  const remarks = instances
    .filter(({ clockDifferenceMs }) => Math.abs(clockDifferenceMs) > MAX_DIFFERENCE_MS)
    .map(({ id }) => `The clock of ${id} differs from that of the database: set both by NTP.`);
  const digests = new Set(instances.map(({ settingsDigest }) => settingsDigest).filter((digest) => digest !== ''));
  if (digests.size > 1) {
    remarks.push('The settings differ between instances: compare `trestle config print` on each of them.');
  }
  if (new Set(instances.map(({ version }) => version)).size > 1) remarks.push('The instances run different versions.');
  return remarks;
}

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
    .description('Shows which node a call of a method would go to now, and why, without making the call.')
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
  if (lines.length === 0) lines.push('There are no other nodes (distributed.nodes).');
  return `${[self, `Hop limit ${limit}; calls that no rule covers: ${action}.`, ...lines].join('\n')}\n`;
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

interface RunnerFlags {
  readonly url?: string;
  readonly key?: string;
  readonly slots: number;
  readonly once?: boolean;
}

const MAX_SLOTS = 1024;
const KEY_VARIABLE = 'RUNNER_KEY';

/** `trestle runner` and `trestle runner create|list|revoke`. */
export function registerRunner(program: Command, context: CommandContext): void {
  const runner = program
    .command('runner')
    .summary('run agents of this machine for a server elsewhere')
    .description(
      'Connects to a server, or to the load balancer of several instances, and runs the agents of this machine for it. The connection goes ' +
        'out from here, so nothing has to reach this machine. Its key comes from `trestle runner create` on the server.',
    )
    .option('--url <url>', 'address of the server')
    .option('--key <key>', `key of this runner; better in ${KEY_VARIABLE}, where other users do not see it`)
    .option('--slots <count>', 'how many turns it runs at the same time', readSlots, 4)
    .addOption(
      new Option('--once', 'take one session and exit when it is closed: a fresh container for each session').conflicts(
        'slots',
      ),
    )
    .addHelpText(
      'after',
      `
Examples:
  trestle runner create builder --labels gpu,linux         on the server; prints the key
  ${KEY_VARIABLE}=trk_... trestle runner --url https://bridge.example.org

In the trestle.yaml of the server, add:
  agents: { custom: [{ id: codex-gpu, runner_agent: codex, requires: [gpu] }] }`,
    )
    .action((flags: RunnerFlags, command: Command) => runRunner(flags, command, context));
  runner
    .command('create')
    .summary('add a runner and print its key, once')
    .description('Adds a runner and prints its key. The key is not shown again: only its digest is stored.')
    .argument('<name>', 'name of the runner: builder')
    .option('--labels <labels>', 'labels that agents may require, separated by commas', commaList)
    .addHelpText('after', '\nExamples:\n  trestle runner create builder --labels gpu,linux')
    .action(async (name: string, { labels = [] }: { readonly labels?: readonly string[] }, command: Command) => {
      const made = await callFromCommand(command, context, 'bridge', 'runners.create', { name, labels });
      print(command, context, made, `${made.key}\n\n  ${made.name}. Keep the key: it is not shown again.\n`);
    });
  runner
    .command('list')
    .summary('list the runners')
    .description('Lists the runners: labels, state, the instance that each is connected to, turns, and agents.')
    .addHelpText('after', '\nExamples:\n  trestle runner list')
    .action(async (_given: unknown, command: Command) => {
      const listed = await callFromCommand(command, context, 'bridge', 'runners.list', {});
      print(command, context, listed, runnersText(listed.runners));
    });
  runner
    .command('revoke')
    .summary('remove a runner; its key stops working')
    .description('Removes a runner. Its connection ends within seconds, and its sessions cannot be continued.')
    .argument('<name>', 'name of the runner')
    .addHelpText('after', '\nExamples:\n  trestle runner revoke builder')
    .action(async (name: string, _given: unknown, command: Command) => {
      await callFromCommand(command, context, 'bridge', 'runners.revoke', { name });
      print(command, context, { name, revoked: true }, `Revoked ${printable(name)}.\n`);
    });
}

function readSlots(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1 && count <= MAX_SLOTS) return count;
  throw new InvalidArgumentError(`Give a number from 1 to ${MAX_SLOTS}.`);
}

async function runRunner(flags: RunnerFlags, command: Command, context: CommandContext) {
  const { url = '', once = false, slots } = flags;
  const { environment, homeDirectory } = context;
  const key = flags.key ?? environment[KEY_VARIABLE] ?? '';
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    fail(context, 'the address of the server is missing: --url https://...', EXIT_USAGE);
  }
  if (key === '') {
    fail(context, `the key of this runner is missing: ${KEY_VARIABLE}=trk_..., from trestle runner create`, EXIT_USAGE);
  }
  const { serve } = await import('./serve-until-stopped.ts');
  const { ADAPTER_METHODS, runnerSettings } = await import('../system/settings.ts');
  const { connectToServer, tokenOfRunner } = await import('../system/cluster.ts');
  const place = { homeDirectory, xdgDataHome: environment.XDG_DATA_HOME };
  const process = once ? createToken(systemRandomness) : '';
  const token = tokenOfRunner(key, process);
  const closed = Promise.withResolvers<void>();

  await serve(['bridge'], command.optsWithGlobals(), context, {
    narrow: (settings) => runnerSettings(settings, token, place),
    // Only its one session reaches a runner with `--once`, so what is closed is that one.
    bridgeMethods: { names: ADAPTER_METHODS, done: (name) => name === 'session.close' && closed.resolve() },
    done: once ? closed.promise : undefined,
    served(summary, logger) {
      const own = { version: PROGRAM_VERSION, host: hostname(), start: createToken(systemRandomness) };
      const hello = { ...own, ...(once ? { slots: 1, process } : { slots }) };
      const connection = connectToServer({
        url,
        key,
        hello,
        port: Number(new URL(summary.url).port),
        clock: systemClock,
        randomness: systemRandomness,
        onChange({ isConnected, reason }) {
          if (isConnected) logger.info({ url }, 'connected');
          else logger.warn({ url, reason }, 'not connected; retrying');
        },
      });
      const ended = connection.ended.catch((error: Error) => {
        context.stderr(`${error.message}\n`);
        throw new CommandExit(EXIT_CONFIGURATION);
      });
      return { ...connection, ended };
    },
  });
}

function runnersText(runners: readonly ListedRunner[]): string {
  if (runners.length === 0) return 'No runners. Add one with: trestle runner create <name>\n';
  const heads = ['RUNNER', 'STATE', 'INSTANCE', 'HOST', 'VERSION', 'LABELS', 'AGENTS', 'TURNS'];
  const rows = runners.map((one) => [
    printable(one.name),
    one.state,
    one.instance || '-',
    printable(one.host) || '-',
    printable(one.version) || '-',
    one.labels.join(',') || '-',
    one.agents.flatMap(({ id, state }) => (state === 'ok' ? [printable(id)] : [])).join(',') || '-',
    `${one.turns}/${one.slots}${one.once === undefined ? '' : ` once, ${one.once}`}`,
  ]);
  return table([heads, ...rows], heads.indexOf('TURNS'));
}
