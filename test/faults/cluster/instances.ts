import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startFaultProxy } from '../../kit/fault-proxy.ts';
import { freePort } from '../../kit/free-port.ts';
import { inTime } from '../../kit/in-time.ts';
import { startHaproxy } from '../../kit/real-haproxy.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { timeLimit } from '../../kit/time.ts';
import { until } from '../../kit/until.ts';

/** A link that can be broken. */
export interface Link {
  readonly url: string;
  readonly port: number;
  /** Nothing comes through for so long: everything is broken off and refused, or stays open and silent. */
  breakFor(ms: number, how: 'refused' | 'silent'): Promise<void>;
}

export interface Instances {
  /** The address of HAProxy. */
  readonly url: string;
  readonly server: RealPostgres;
  readonly programs: readonly RunningProgram[];
  /** Of each instance: its way to the database, and the way of the others to it. Empty unless they were asked for. */
  readonly links: readonly { readonly toDatabase: Link; readonly fromOthers: Link }[];
  /** Ends it without notice and starts it again; resolves with the moment of its end. */
  kill(index: number): Promise<number>;
  /** Lets it finish its work, starts it again with a clock that is ahead by so much, and waits until HAProxy uses it. */
  restart(index: number, aheadMs?: number): Promise<void>;
}

/** A turn may last so long when its instance is stopped. */
const DRAIN_MS = 300_000;

/**
 * Starts instances on one PostgreSQL behind HAProxy, each with a data directory of its own. `hasLinks`: with links between them and to
 * the database that can be broken.
 */
export async function startInstances(
  scope: Scope,
  count: number,
  settings: Readonly<Record<string, string>> = {},
  hasLinks = false,
): Promise<Instances> {
  const server = await startPostgres();
  scope.after(() => server.stop());
  const places: { readonly port: number; readonly dataDirectory: string }[] = [];
  const programs: RunningProgram[] = [];
  const links: { readonly toDatabase: Link; readonly fromOthers: Link }[] = [];
  const environment = { TRESTLE_CLUSTER_DRAIN: `${DRAIN_MS / 1000}s`, ...settings };

  async function start(index: number, aheadMs = 0): Promise<void> {
    const { port, dataDirectory } = places[index] ?? { port: 0, dataDirectory: '' };
    const { toDatabase, fromOthers } = links[index] ?? {};
    const database = new URL(server.url);
    if (toDatabase !== undefined) database.port = String(toDatabase.port);
    const args = ['--log-level', 'error', '--database', database.href, '--listen', `127.0.0.1:${port}`];
    const address = fromOthers === undefined ? {} : { TRESTLE_CLUSTER_ADDRESS: fromOthers.url };
    const clock = aheadMs === 0 ? {} : { NODE_OPTIONS: `--require ${await wrongClock(scope, aheadMs)}` };
    programs[index] = await startProgram(scope, {
      dataDirectory,
      args,
      environment: { ...environment, ...clock, ...address },
    });
  }

  for (let index = 0; index < count; index += 1) {
    const port = await freePort();
    places.push({ port, dataDirectory: await temporaryFolder(scope) });
    if (hasLinks) {
      const toDatabase = await startLink(scope, Number(new URL(server.url).port));
      links.push({ toDatabase, fromOthers: await startLink(scope, port) });
    }
    await start(index);
  }
  const { url, log } = await startHaproxy(
    scope,
    places.map(({ port }) => port),
  );

  return {
    url,
    server,
    programs,
    links,
    async kill(index) {
      await programs[index]?.stop('SIGKILL');
      const killedAt = performance.now();
      await start(index);
      return killedAt;
    },
    async restart(index, aheadMs = 0) {
      const child = programs[index]?.child;
      if (child === undefined) return;
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await inTime(`instance ${index + 1} to end after SIGTERM`, exited, timeLimit(DRAIN_MS));
      await start(index, aheadMs);
      await until(`HAProxy to use instance ${index + 1}`, () => isInUse(log(), index));
    },
  };
}

async function startLink(scope: Scope, target: number): Promise<Link> {
  let isSilent = false;
  const proxy = await startFaultProxy(scope, target, () => (isSilent ? { after: 0, end: 'stall' } : {}));
  return {
    url: proxy.url,
    port: proxy.port,
    async breakFor(ms, how) {
      isSilent = how === 'silent';
      if (isSilent) proxy.stallAll();
      else await proxy.takeDown();
      await sleep(ms);
      isSilent = false;
      // What was silent is broken off: no network keeps what it did not carry for so long.
      if (how === 'silent') proxy.cutAll();
      else await proxy.raise();
    },
  };
}

/** By the last of what HAProxy has said about an instance. */
function isInUse(log: string, index: number): boolean {
  const server = `instances/trestle${index + 1} is`;
  return log.lastIndexOf(`${server} UP`) >= log.lastIndexOf(`${server} DOWN`);
}

async function wrongClock(scope: Scope, aheadMs: number): Promise<string> {
  const script = join(await temporaryFolder(scope), 'clock.cjs');
  await writeFile(script, `const now = Date.now;\nDate.now = () => now() + ${aheadMs};\n`);
  return script;
}
