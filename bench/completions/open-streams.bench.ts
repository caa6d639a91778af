import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { residentBytes } from '../../test/kit/resident-bytes.ts';
import { START_ARGUMENTS } from '../../test/kit/start-command.ts';
import { configurationFor, issueKey } from './completions-server.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SETTLE_MS = 1500;
/** One model API gets 512 calls of one key at a time. */
const STREAMS_OF_A_KEY = 250;

/** Resident memory of the program, in MiB, while so many streams are open. */
export async function benchOpenStreams(upstreamPort: number, streams: number): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-bench-'));
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, configurationFor(upstreamPort), { mode: 0o600 });
  const args = [...START_ARGUMENTS, 'serve', '--json', '--listen', '127.0.0.1:0', '--data-dir', folder];
  const child = spawn(process.execPath, [...args, '--config', config], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const sockets: Socket[] = [];
  try {
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    const { url } = JSON.parse(line) as { url: string };
    const port = Number(new URL(url).port);
    let key: Readonly<Record<string, string>> = {};
    for (let count = 0; count < streams; count += 50) {
      if (count % STREAMS_OF_A_KEY === 0) key = await issueKey(url);
      const opened = Array.from({ length: Math.min(50, streams - count) }, () => openStream(port, key));
      sockets.push(...(await Promise.all(opened)));
    }
    await sleep(SETTLE_MS);
    return (await residentBytes(child.pid ?? 0)) / 1024 / 1024;
  } finally {
    for (const socket of sockets) socket.destroy();
    child.kill('SIGKILL');
    await once(child, 'exit');
    await rm(folder, { recursive: true });
  }
}

async function openStream(port: number, { authorization }: Readonly<Record<string, string>>): Promise<Socket> {
  const body = JSON.stringify({
    model: 'bench/small',
    stream: true,
    user: 'hang',
    messages: [{ role: 'user', content: 'Hello' }],
  });
  const socket = connect(port, '127.0.0.1');
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: ${authorization}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!head.toString('latin1').startsWith('HTTP/1.1 200 ')) throw new Error(`no stream: ${head.toString('latin1')}`);
  socket.resume();
  return socket;
}
