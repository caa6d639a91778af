import { type ChildProcess, spawn } from 'node:child_process';
import { createConnection } from 'node:net';
import { freePort } from './free-port.ts';
import { ended, installedProgram } from './real-haproxy.ts';
import { type Scope, temporaryFolder } from './running-program.ts';
import { until } from './until.ts';

const PLACES = ['/usr/bin/redis-server', '/usr/local/bin/redis-server', '/opt/homebrew/bin/redis-server'];
const PASSWORD = 'redis-password-1';

export interface RealRedis {
  /** With its password. */
  readonly url: string;
  /** It keeps its connections, and answers nothing any more. */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
  /** Again at the same address, with nothing in it. */
  start(): Promise<void>;
}

/** A Redis server of this test, with a password and without files. */
export async function startRedis(scope: Scope): Promise<RealRedis> {
  const program = await installedProgram('redis-server', PLACES);
  const port = await freePort();
  const folder = await temporaryFolder(scope);
  let child: ChildProcess | undefined;
  scope.after(() => child && ended(child));

  async function start(): Promise<void> {
    const args = ['--port', String(port), '--bind', '127.0.0.1', '--requirepass', PASSWORD];
    const started = spawn(program, [...args, '--save', '', '--appendonly', 'no', '--dir', folder], { stdio: 'ignore' });
    child = started;
    await until('Redis to listen', async () => {
      if (started.exitCode !== null) throw new Error('redis-server did not start');
      const { promise, resolve } = Promise.withResolvers<boolean>();
      const socket = createConnection(port, '127.0.0.1', () => resolve(true));
      socket.on('error', () => resolve(false));
      const isOpen = await promise;
      socket.destroy();
      return isOpen;
    });
  }

  await start();
  return {
    url: `redis://:${PASSWORD}@127.0.0.1:${port}`,
    freeze: () => child?.kill('SIGSTOP'),
    thaw: () => child?.kill('SIGCONT'),
    stop: async () => child && ended(child),
    start,
  };
}
