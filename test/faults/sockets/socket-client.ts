// Runs in a process of its own: it holds as many files open as the program does, and its times are its own.
import { setTimeout as sleep } from 'node:timers/promises';
import { openBareWebSocket } from '../../kit/bare-web-socket.ts';
import { CLOSE, frame, PING, PONG, TEXT } from '../../kit/raw-web-socket.ts';
import { inBatches } from '../in-batches.ts';
import { CALLS_PER_SECOND, type EndedCalls, type Operation, type Phase } from './check-operations.ts';
import { readFrames, type ServerFrame } from './read-frames.ts';

/** What the process is asked to do. It answers with operations, and leaves. */
export interface SocketWork {
  readonly port: number;
  readonly token: string;
  readonly sockets: number;
  readonly holdMs: number;
}

interface HeldSocket {
  readonly index: number;
  send(bytes: Buffer): void;
}

interface WaitingCall {
  /** The answer must come over the same one. */
  readonly socket: number;
  readonly phase: Phase;
  readonly dueAt: number;
}

const SECOND_MS = 1000;
const EVERY_MS = SECOND_MS / CALLS_PER_SECOND;
/** A call that has no answer by then will not get one. */
const ANSWER_LIMIT_MS = 30_000;
const EMPTY: Buffer = Buffer.alloc(0);

const waiting = new Map<number, WaitingCall>();
/** Since the last line of the log. */
const ended = new Map<string, EndedCalls & { readonly times: Record<string, number> }>();
let lastId = 0;
let isLeaving = false;

const note = (operation: Operation): void => void process.send?.(operation);

function noteEnd({ phase, dueAt }: WaitingCall, outcome: EndedCalls['outcome']): void {
  const name = `${phase} ${outcome}`;
  const calls = ended.get(name) ?? { kind: 'calls', phase, outcome, times: {} };
  ended.set(name, calls);
  const ms = String(Math.ceil(performance.now() - dueAt));
  calls.times[ms] = (calls.times[ms] ?? 0) + 1;
}

function noteSecond(): void {
  for (const calls of ended.values()) note(calls);
  ended.clear();
}

function takeAnswer(socket: number, text: string): void {
  const { id, ok } = JSON.parse(text) as { id: number; ok: boolean };
  const call = waiting.get(id);
  // It is noted already that the answer did not come in time.
  if (call === undefined) return;
  waiting.delete(id);
  noteEnd(call, ok && call.socket === socket ? 'ok' : 'fail');
}

/** Opens one, answers its pings, and tells when it is lost. Undefined when the program does not take it. */
async function openSocket({ port, token }: SocketWork, index: number): Promise<HeldSocket | undefined> {
  const socket = await openBareWebSocket({ port, path: '/acp', token }).catch(() => undefined);
  if (socket === undefined) return undefined;
  const openedAt = performance.now();
  let isLost = false;
  let rest = EMPTY;
  const lose = (why: string): void => {
    if (isLost || isLeaving) return;
    isLost = true;
    note({ kind: 'drop', socket: index, afterMs: Math.round(performance.now() - openedAt), why });
  };
  const take = ({ opcode, payload }: ServerFrame): void => {
    if (opcode === TEXT) takeAnswer(index, payload.toString());
    else if (opcode === PING) socket.write(frame({ opcode: PONG, payload }));
    else if (opcode === CLOSE) lose(`closed with ${payload.length >= 2 ? payload.readUInt16BE(0) : 'no code'}`);
  };
  socket.on('data', (bytes: Buffer) => {
    const read = readFrames(rest.length === 0 ? bytes : Buffer.concat([rest, bytes]));
    rest = read.rest.length === 0 ? EMPTY : read.rest;
    for (const one of read.frames) take(one);
  });
  socket.once('error', ({ message }) => lose(message));
  socket.once('close', () => lose('the connection ended'));
  socket.resume();
  return { index, send: (bytes) => void socket.write(bytes) };
}

function call({ index, send }: HeldSocket, phase: Phase, dueAt: number): void {
  lastId += 1;
  waiting.set(lastId, { socket: index, phase, dueAt });
  send(frame({ opcode: TEXT, payload: `{"jsonrpc":"2.0","id":${lastId},"method":"acp.capabilities"}` }));
}

/** So many calls, one socket after the other, each when it is due and however long the others take. */
async function callInTurn(sockets: readonly HeldSocket[], phase: Phase, count: number): Promise<number> {
  const began = performance.now();
  for (let begun = 0; begun < count; await sleep(1)) {
    for (; begun < count && began + begun * EVERY_MS <= performance.now(); begun += 1) {
      const socket = sockets[begun % sockets.length];
      if (socket !== undefined) call(socket, phase, began + begun * EVERY_MS);
    }
  }
  return performance.now() - began;
}

async function allAnswers(): Promise<void> {
  const limit = performance.now() + ANSWER_LIMIT_MS;
  while (waiting.size > 0 && performance.now() < limit) await sleep(10);
  for (const one of waiting.values()) noteEnd(one, 'unknown');
  waiting.clear();
}

process.once('disconnect', () => process.exit());
process.once('message', async (work: SocketWork) => {
  const all = await inBatches(work.sockets, (index) => openSocket(work, index));
  const sockets = all.filter((socket) => socket !== undefined);
  note({ kind: 'opened', wanted: work.sockets, count: sockets.length });
  const seconds = setInterval(noteSecond, SECOND_MS);
  const ms = await callInTurn(sockets, 'held', work.holdMs / EVERY_MS);
  await allAnswers();
  await callInTurn(sockets, 'last', sockets.length);
  await allAnswers();
  clearInterval(seconds);
  noteSecond();
  isLeaving = true;
  note({ kind: 'held', ms });
});
