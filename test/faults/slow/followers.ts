// Runs in a thread of its own, so that reading takes no time from whoever measures.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { inBatches } from './in-batches.ts';

/** What the thread is to do: it says when all follow, and at the end which of them were cut off. */
export interface FollowersWork {
  readonly url: string;
  readonly sessions: readonly string[];
  readonly count: number;
  readonly reads: boolean;
}

/** For sockets that were cut off to notice it. */
const NOTICE_MS = 7000;

/** A follower as a bare connection: it takes what comes, or not, and spends no time on it. */
async function openFollower(url: string, session: string): Promise<Socket> {
  const { port } = new URL(url);
  const socket = connect(Number(port), '127.0.0.1');
  socket.on('error', () => undefined);
  const head = [
    `GET /acp?sessionId=${session} HTTP/1.1`,
    `Host: 127.0.0.1:${port}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${Buffer.from('sixteen bytes ok').toString('base64')}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  if (!answer.toString().startsWith('HTTP/1.1 101')) throw new Error(`a follower was refused: ${answer}`);
  socket.on('data', () => undefined);
  return socket;
}

const { url, sessions, count, reads } = workerData as FollowersWork;
const sockets = await inBatches(count, (index) => openFollower(url, sessions[index % sessions.length] ?? ''));
if (!reads) for (const socket of sockets) socket.pause();
parentPort?.once('message', async () => {
  for (const socket of sockets) socket.resume();
  if (!reads) await sleep(NOTICE_MS);
  parentPort?.postMessage(sockets.map(({ closed }) => closed));
});
parentPort?.postMessage('ready');
