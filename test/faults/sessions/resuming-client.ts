import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import type { Envelope } from '../../kit/bridge/bridge-client.ts';
import { stream, type Update } from '../../kit/bridge/session-client.ts';
import type { Operation, TurnCall } from './check-operations.ts';
import { readUpdate } from './stored-sessions.ts';

/** A client of one session that comes back whenever its connection is lost. */
export interface ResumingClient {
  /** One turn after the other, until it is told to stop and the connection is gone. */
  workUntil(url: string, isOver: () => boolean): Promise<void>;
  /** Sees what it has missed, and does one last turn. */
  finish(url: string): Promise<void>;
}

export interface ResumingClientOptions {
  readonly session: string;
  readonly random: () => number;
  note(operation: Operation): void;
}

/** How often it leaves in the middle of a turn by itself, and how often it repeats a call whose answer it never got. */
const LEAVES = 0.15;
const MAX_STAY_MS = 100;
const REPEATS = 0.5;
/** Each wait ends with the kill at the latest; the last ones with this. */
const LIMIT_MS = 60_000;

interface Unanswered {
  readonly method: string;
  readonly prompt: string;
}

export function createResumingClient({ session, random, note }: ResumingClientOptions): ResumingClient {
  let connections = 0;
  let prompts = 0;
  let lastSeq = 0;
  /** The agent was seen at work: the session can be continued. */
  let hasWorked = false;
  let unanswered: Unanswered | undefined;

  function noteConnection(chain: boolean): string {
    connections += 1;
    const connection = `${session}/${connections}`;
    note({ kind: 'connected', session, connection, chain, afterSeq: lastSeq });
    return connection;
  }

  function noteUpdate(connection: string, update: Update): void {
    const at = performance.now();
    note({ kind: 'update', connection, at, ...readUpdate(session, update.seq, update) });
  }

  async function connect(url: string): Promise<WebSocket | undefined> {
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp?sessionId=${session}&afterSeq=${lastSeq}`);
    const connection = noteConnection(true);
    socket.on('error', () => undefined);
    socket.on('message', (data) => {
      const { params } = JSON.parse(String(data)) as { params?: Update };
      if (params === undefined) return;
      noteUpdate(connection, params);
      lastSeq = Math.max(lastSeq, params.seq);
      hasWorked ||= !['failed', 'queued'].includes(params.event);
    });
    await once(socket, 'open').catch(() => undefined);
    return socket.readyState === WebSocket.OPEN ? socket : undefined;
  }

  /** Resolves with the answer; with nothing when the connection ends before. */
  function answerTo(socket: WebSocket, message: { readonly id: string }): Promise<Envelope | undefined> {
    return new Promise((resolve) => {
      const onMessage = (data: unknown): void => {
        const answer = JSON.parse(String(data)) as Envelope;
        if (answer.type === 'res' && answer.id === message.id) settle(answer);
      };
      const onClose = (): void => settle(undefined);
      const settle = (answer: Envelope | undefined): void => {
        socket.off('message', onMessage).off('close', onClose);
        resolve(answer);
      };
      socket.on('message', onMessage).on('close', onClose);
      socket.send(JSON.stringify(message));
    });
  }

  async function takeTurn(socket: WebSocket): Promise<void> {
    prompts += 1;
    const prompt = `${session}-${prompts}`;
    const method = hasWorked ? 'session.message' : 'session.start';
    const answer = await answerTo(socket, request(method, prompt));
    note({ kind: 'turn', method, session, prompt, ...told(answer) });
    unanswered = answer === undefined ? { method, prompt } : undefined;
  }

  /** Asks over HTTP what became of the call whose answer never came. */
  async function repeat(url: string): Promise<void> {
    if (unanswered === undefined) return;
    const { method, prompt } = unanswered;
    unanswered = undefined;
    const connection = noteConnection(false);
    const headers = { 'last-event-id': String(lastSeq) };
    const see = (update: Update): boolean => {
      noteUpdate(connection, update);
      return false;
    };
    const answer = await stream(url, request(method, prompt), headers, see).catch(() => undefined);
    const { final } = answer ?? {};
    note({ kind: 'repeat', session, prompt, ...told(final?.type === 'res' ? final : undefined) });
  }

  const request = (method: string, prompt: string) => ({
    jsonrpc: '2.0',
    id: prompt,
    method,
    params: { sessionId: session, taskPrompt: prompt },
  });

  async function leave(socket: WebSocket): Promise<void> {
    if (socket.readyState === WebSocket.CLOSED) return;
    const closed = once(socket, 'close');
    socket.terminate();
    await closed;
  }

  return {
    async workUntil(url, isOver) {
      while (!isOver()) {
        if (random() < REPEATS) await repeat(url);
        const socket = await connect(url);
        while (socket?.readyState === WebSocket.OPEN && !isOver()) {
          const stay = random() < LEAVES ? random() * MAX_STAY_MS : undefined;
          const turn = takeTurn(socket);
          if (stay !== undefined) {
            await Promise.race([sleep(stay), turn]);
            await leave(socket);
          }
          await turn;
        }
        if (socket !== undefined) await leave(socket);
        // A program that is gone is not asked again and again.
        else await sleep(20);
      }
    },
    async finish(url) {
      const limit = new AbortController();
      const tooLate = sleep(LIMIT_MS, undefined, { signal: limit.signal }).then(() => {
        throw new Error(`the last turn of ${session} did not end within ${LIMIT_MS} ms`);
      });
      const last = async (): Promise<void> => {
        await repeat(url);
        const socket = await connect(url);
        if (socket === undefined) throw new Error(`${session} could not connect`);
        await takeTurn(socket);
        await leave(socket);
      };
      try {
        await Promise.race([last(), tooLate]);
      } finally {
        limit.abort();
        tooLate.catch(() => undefined);
      }
    },
  };
}

function told(answer: Envelope | undefined): Pick<TurnCall, 'outcome' | 'turnId' | 'status' | 'code'> {
  if (answer === undefined) return { outcome: 'unknown' };
  const { result, error } = answer;
  if (result === undefined) return { outcome: 'fail', code: String(error?.data.code) };
  return { outcome: 'ok', turnId: String(result.turnId), status: String(result.status) };
}
