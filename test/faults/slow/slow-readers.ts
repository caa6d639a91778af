import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { WebSocket } from 'ws';
import { call as callRpc } from '../../kit/bridge/session-client.ts';
import { residentBytes } from '../../kit/resident-bytes.ts';
import type { RunningProgram } from '../../kit/running-program.ts';
import { inBatches } from '../in-batches.ts';
import type { Operation, Phase } from './check-operations.ts';
import type { FollowersWork } from './followers.ts';
import { measureCalls } from './measured-calls.ts';
import { TALK } from './talkative-model.ts';

/** One socket in so many does not read. */
const SHARE = 4;
const FOLLOWERS_PER_SESSION = 25;
/** Calls of the others, in all of them. */
const EVERY_MS = 5;
const MEMORY_EVERY_MS = 100;
const TURN_LIMIT_MS = 120_000;

/**
 * Opens so many sockets, a part of which follows talkative sessions, while the others go on calling: once all of them read,
 * then those that follow do not.
 */
export async function holdSlowReaders(
  { url, pid }: RunningProgram,
  total: number,
  note: (operation: Operation) => void,
): Promise<void> {
  const followers = Math.ceil(total / SHARE);
  const sessions = Math.ceil(followers / FOLLOWERS_PER_SESSION);
  const callers = await inBatches(total - followers, () => openCaller(url));
  let turn = 0;
  const call = (): Promise<boolean> => {
    turn += 1;
    return callOver(callers[turn % callers.length], turn);
  };

  /** Answers with which of the followers were cut off. */
  async function follow(phase: Phase, reads: boolean): Promise<readonly boolean[]> {
    const talkers = await inBatches(sessions, (index) => openTalker(url, `${reads ? 'read' : 'unread'}-${index}`));
    const names = talkers.map(({ session }) => session);
    const work: FollowersWork = { url, sessions: names, count: followers, reads };
    const worker = new Worker(new URL('./followers.ts', import.meta.url), { workerData: work });
    try {
      await withinLimit(once(worker, 'message'), 'the opening of the followers');
      const memory = watchMemory(pid, phase, note);
      const over = Promise.all(talkers.map(({ talk }) => talk()));
      await measureCalls({ phase, everyMs: EVERY_MS, note, call }, over).finally(memory.stop);
      const ended = once(worker, 'message');
      worker.postMessage('leave');
      const [areCut] = (await withinLimit(ended, 'the end of the followers')) as [readonly boolean[]];
      return areCut;
    } finally {
      await worker.terminate();
    }
  }

  await follow('all read', true);
  for (const isCut of await follow('slow readers', false)) note({ kind: 'unread', isCut });
  for (const socket of callers) socket.terminate();
}

async function openCaller(url: string): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp`);
  socket.on('error', () => undefined);
  await once(socket, 'open');
  return socket;
}

function callOver(socket: WebSocket | undefined, id: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    if (socket?.readyState !== WebSocket.OPEN) {
      reject(new Error('the socket of a reader is closed'));
      return;
    }
    const settle = (end: () => void): void => {
      socket.off('message', onMessage).off('close', onClose);
      end();
    };
    const onMessage = (data: unknown): void => {
      const answer = JSON.parse(String(data)) as { id: number; ok: boolean };
      if (answer.id === id) settle(() => resolve(answer.ok));
    };
    const onClose = (): void => settle(() => reject(new Error('closed')));
    socket.on('message', onMessage).on('close', onClose);
    socket.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'acp.capabilities', params: {} }));
  });
}

interface Talker {
  readonly session: string;
  /** Resolves when all was said. */
  talk(): Promise<void>;
}

/** A session with one client that reads. It says a word when it is opened, and much when it is told to. */
async function openTalker(url: string, session: string): Promise<Talker> {
  const turn = async (method: string, taskPrompt: string): Promise<void> => {
    const params = { sessionId: session, taskPrompt };
    const { result } = await withinLimit(callRpc(url, method, params), `the turn of ${session}`);
    if (result?.success !== true) throw new Error(`${session} failed: ${JSON.stringify(result).slice(0, 1000)}`);
  };
  await turn('session.start', 'hello');
  return { session, talk: () => turn('session.message', TALK) };
}

async function withinLimit<Result>(work: Promise<Result>, what: string): Promise<Result> {
  const limit = sleep(TURN_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error(`${what} did not end within ${TURN_LIMIT_MS} ms`);
  });
  return Promise.race([work, limit]);
}

/** Where the system tells. */
function watchMemory(pid: number, phase: Phase, note: (operation: Operation) => void): { stop(): void } {
  const timer = setInterval(async () => {
    const bytes = await residentBytes(pid);
    if (!Number.isNaN(bytes)) note({ kind: 'memory', phase, bytes });
  }, MEMORY_EVERY_MS);
  return { stop: () => clearInterval(timer) };
}
