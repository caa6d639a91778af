// Runs in a thread of its own, so that reading takes no time from whoever measures.
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { openBareWebSocket } from '../../kit/bare-web-socket.ts';
import { inBatches } from '../in-batches.ts';

/** What the thread is to do: it says when all follow, and at the end which of them were cut off. */
export interface FollowersWork {
  readonly url: string;
  readonly sessions: readonly string[];
  readonly count: number;
  readonly reads: boolean;
}

/** For sockets that were cut off to notice it. */
const NOTICE_MS = 7000;

const { url, sessions, count, reads } = workerData as FollowersWork;
const port = Number(new URL(url).port);
const sockets = await inBatches(count, (index) =>
  openBareWebSocket({ port, path: `/acp?sessionId=${sessions[index % sessions.length]}` }),
);
if (reads) for (const socket of sockets) socket.resume();
parentPort?.once('message', async () => {
  for (const socket of sockets) socket.resume();
  if (!reads) await sleep(NOTICE_MS);
  parentPort?.postMessage(sockets.map(({ closed }) => closed));
});
parentPort?.postMessage('ready');
