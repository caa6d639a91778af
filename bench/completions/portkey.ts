import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { installPeer } from '../../test/kit/install-peer.ts';

const PACKAGE = '@portkey-ai/gateway';
const VERSION = '1.15.2';
const START_MS = 30_000;

export interface Portkey {
  readonly port: number;
  readonly headers: Readonly<Record<string, string>>;
  close(): void;
}

/** Undefined where it cannot be had: without a network there is no comparison. */
export async function startPortkey(upstreamPort: number): Promise<Portkey | undefined> {
  const folder = await installPeer(PACKAGE, VERSION);
  if (folder === undefined) return undefined;
  const entry = join(folder, 'build', 'start-server.js');
  const port = await freePort();
  const host = `http://127.0.0.1:${upstreamPort}/v1`;
  const child = spawn(process.execPath, [entry, `--port=${port}`, '--headless'], {
    cwd: folder,
    stdio: 'ignore',
    env: { PATH: process.env.PATH, HOME: homedir(), TRUSTED_CUSTOM_HOSTS: '127.0.0.1,localhost' },
  });
  const headers = {
    authorization: 'Bearer bench-upstream-key',
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': host,
  };
  for (const deadline = performance.now() + START_MS; performance.now() < deadline; ) {
    await sleep(100);
    const body = JSON.stringify({ model: 'small', messages: [{ role: 'user', content: 'Hello' }] });
    const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body,
    }).catch(() => undefined);
    if (response?.ok === true) return { port, headers, close: () => void child.kill() };
    if (child.exitCode !== null) break;
  }
  child.kill();
  return undefined;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}
