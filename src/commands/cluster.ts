import type { Command } from 'commander';
import { type CommandContext, print } from './command-context.ts';
import { commandAccess } from './load-settings.ts';
import { table } from './sessions.ts';
import { printable } from './turn-display.ts';

type Listed = Awaited<ReturnType<typeof import('../system/cluster.ts')['readInstances']>>;

/** A clock that is further away than this is named. */
const MAX_DIFFERENCE_MS = 5_000;

/** `trestle cluster`. */
export function registerCluster(program: Command, context: CommandContext): void {
  program
    .command('cluster')
    .summary('list the instances that share the database')
    .description(
      'Lists the instances that share the PostgreSQL database: version, address, state, what is left of the lease, how far the ' +
        'clock is ahead of that of the database, sessions at work, WebSockets, and a digest of the settings that must agree.',
    )
    .addHelpText('after', '\nExamples:\n  trestle cluster\n  trestle cluster --json')
    .action(async (_given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { readInstances } = await import('../system/cluster.ts');
      const instances = await readInstances(access);
      print(command, context, { instances }, clusterText(instances));
    });
}

/** `trestle drain INSTANCE`. */
export function registerDrain(program: Command, context: CommandContext): void {
  program
    .command('drain')
    .summary('let an instance finish its work and end')
    .description(
      'Lets an instance of the PostgreSQL database leave, as SIGTERM does, from any machine that reaches the database, and waits until it ' +
        'has ended: it says that it is not ready, serves everything for cluster.notice, closes its WebSockets, and gives its turns cluster.drain.',
    )
    .argument('<instance>', 'id of an instance, from trestle cluster')
    .addHelpText('after', '\nExamples:\n  trestle cluster\n  trestle drain ins_01jd2x7k9m4v8q5w3e6r1t0y2z')
    .action(async (id: string, _given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { drainInstance } = await import('../system/cluster.ts');
      await drainInstance(access, id, () => context.stderr(`${printable(id)} is leaving\n`));
      print(command, context, { drained: id }, `${printable(id)} has ended\n`);
    });
}

function clusterText(instances: Listed): string {
  if (instances.length === 0) return 'No instance runs.\n';
  const heads = ['INSTANCE', 'VERSION', 'ADDRESS', 'STATE', 'SETTINGS', 'LEASE', 'CLOCK', 'SESSIONS', 'SOCKETS'];
  const rows = instances.map((one) => [
    one.id,
    printable(one.version),
    printable(one.address),
    one.state,
    one.settingsDigest || '-',
    seconds(one.leaseMs),
    `${one.clockDifferenceMs < 0 ? '' : '+'}${seconds(one.clockDifferenceMs)}`,
    String(one.sessions),
    String(one.sockets),
  ]);
  const remarks = remarksAbout(instances).map((remark) => `  ${remark}\n`);
  return `${table([heads, ...rows], heads.indexOf('LEASE'))}${remarks.length === 0 ? '' : `\n${remarks.join('')}`}`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
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
