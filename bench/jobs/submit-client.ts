import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** What the parent process asks for. */
export interface SubmitRound {
  readonly port: number;
  readonly path: string;
  readonly body: string;
  readonly connections: number;
  readonly ms: number;
  /** So many submits a second, whatever the answers do; without it, each connection sends when it has its answer. */
  readonly perSecond?: number;
}

export interface SubmitCount {
  readonly answers: number;
  readonly refusals: number;
  readonly ms: number;
  /** At a steady rate: from the moment at which each submit was due until its answer, in milliseconds. */
  readonly tookMs: readonly number[];
}

/** A program of its own on plain sockets, because garbage that it collects would stop all submits that are under way. */
const CLOSING_BRACE = 0x7d;
const ACCEPTED = '"pending"';

interface Lane {
  readonly socket: Socket;
  dueAt: number;
}

let lanes: Promise<Lane[]> | undefined;
let request = '';
let onAnswer: (lane: Lane) => void = () => undefined;
let answers = 0;
let refusals = 0;

async function connect(port: number): Promise<Lane> {
  const socket = connectTcp(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setNoDelay();
  const lane: Lane = { socket, dueAt: 0 };
  // Better no figure than one that waits for an answer which cannot come.
  socket.on('close', () => process.exit(1));
  socket.on('data', (piece) => {
    if (piece[piece.length - 1] !== CLOSING_BRACE) return;
    if (piece.includes(ACCEPTED)) answers += 1;
    else refusals += 1;
    onAnswer(lane);
  });
  return lane;
}

function send(lane: Lane, dueAt: number): void {
  lane.dueAt = dueAt;
  lane.socket.write(request);
}

async function run(round: SubmitRound): Promise<SubmitCount> {
  const { port, path, body, connections, ms, perSecond } = round;
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json`;
  request = `${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  lanes ??= Promise.all(Array.from({ length: connections }, () => connect(port)));
  const all = await lanes;
  answers = 0;
  refusals = 0;
  const started = performance.now();
  const tookMs = await (perSecond === undefined ? sendInTurn(all, ms) : sendAtPace(all, ms, perSecond));
  return { answers, refusals, ms: performance.now() - started, tookMs };
}

async function sendInTurn(all: readonly Lane[], ms: number): Promise<[]> {
  const started = performance.now();
  let under = all.length;
  onAnswer = (lane) => {
    if (performance.now() - started < ms) send(lane, 0);
    else under -= 1;
  };
  for (const lane of all) send(lane, 0);
  while (under > 0) await sleep(1);
  return [];
}

/** One that is due is sent on a connection that is free, and waits for one where there is none: that counts, too. */
async function sendAtPace(all: readonly Lane[], ms: number, perSecond: number): Promise<readonly number[]> {
  const tookMs: number[] = [];
  const free = [...all];
  const started = performance.now();
  const dueAt = (count: number): number => started + (count * 1000) / perSecond;
  const last = Math.floor((ms * perSecond) / 1000);
  let sent = 0;
  const sendDue = (): void => {
    while (sent < last && dueAt(sent) <= performance.now()) {
      const lane = free.pop();
      if (lane === undefined) return;
      send(lane, dueAt(sent));
      sent += 1;
    }
  };
  onAnswer = (lane) => {
    tookMs.push(performance.now() - lane.dueAt);
    free.push(lane);
    sendDue();
  };
  while (sent < last || free.length < all.length) {
    sendDue();
    await sleep(1);
  }
  return tookMs;
}

process.on('message', (round: SubmitRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
