import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../kit/free-port.ts';
import { inTime } from '../../kit/in-time.ts';
import { startHaproxy } from '../../kit/real-haproxy.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { timeLimit } from '../../kit/time.ts';
import { until } from '../../kit/until.ts';

export interface Instances {
  /** The address of HAProxy. */
  readonly url: string;
  readonly server: RealPostgres;
  readonly programs: readonly RunningProgram[];
  /** Ends it without notice and starts it again; resolves with the moment of its end. */
  kill(index: number): Promise<number>;
  /** Lets it finish its work, starts it again with a clock that is ahead by so much, and waits until HAProxy uses it. */
  restart(index: number, aheadMs?: number): Promise<void>;
}

/** A turn may last so long when its instance is stopped. */
const DRAIN_MS = 300_000;

/** Starts instances on one PostgreSQL behind HAProxy, each with a data directory of its own. */
export async function startInstances(
  scope: Scope,
  count: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<Instances> {
  const server = await startPostgres();
  scope.after(() => server.stop());
  const places: { readonly port: number; readonly dataDirectory: string }[] = [];
  const programs: RunningProgram[] = [];
  const environment = { TRESTLE_CLUSTER_DRAIN: `${DRAIN_MS / 1000}s`, ...settings };

  async function start(index: number, aheadMs = 0): Promise<void> {
    const { port, dataDirectory } = places[index] ?? { port: 0, dataDirectory: '' };
    const args = ['--log-level', 'error', '--database', server.url, '--listen', `127.0.0.1:${port}`];
    const clock = aheadMs === 0 ? {} : { NODE_OPTIONS: `--require ${await wrongClock(scope, aheadMs)}` };
    programs[index] = await startProgram(scope, { dataDirectory, args, environment: { ...environment, ...clock } });
  }

  for (let index = 0; index < count; index += 1) {
    places.push({ port: await freePort(), dataDirectory: await temporaryFolder(scope) });
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
