// Runs in a process of its own: it holds as many files open as all instances together.
import { setTimeout as sleep } from 'node:timers/promises';
import { openBareWebSocket } from '../../kit/bare-web-socket.ts';
import { frame, PING, PONG, TEXT } from '../../kit/raw-web-socket.ts';
import { inBatches } from '../in-batches.ts';
import { readFrames, type ServerFrame } from '../sockets/read-frames.ts';

/** What the process is asked to do: first to follow, then to compare with what is stored. */
export type FollowersWork =
  | {
      readonly kind: 'follow';
      readonly ports: readonly number[];
      readonly sessions: readonly string[];
      readonly sockets: number;
    }
  | { readonly kind: 'compare'; readonly stored: readonly (readonly number[])[]; readonly patienceMs: number };

/** What it answers with. */
export type FollowersAnswer =
  | { readonly kind: 'following'; readonly sockets: number }
  | {
      readonly kind: 'compared';
      readonly violations: readonly string[];
      readonly again: number;
      readonly updates: number;
    };

interface Follower {
  readonly session: number;
  readonly seqs: number[];
  /** How often it heard that its turn has failed. */
  ends: number;
  /** Its connections, for the report of what it missed: where, after which number, and what came first. */
  readonly connections: string[];
}

const EMPTY: Buffer = Buffer.alloc(0);
/** Clients that were cut off come back within this time, not all in the same moment. */
const BACK_WITHIN_MS = 2000;
const LOOK_EVERY_MS = 100;
const followers: Follower[] = [];
let again = 0;

function take(follower: Follower, text: string): void {
  const { method, params } = JSON.parse(text) as {
    readonly method?: string;
    readonly params: { readonly seq: number; readonly type: string; readonly event?: string };
  };
  if (method !== 'session.update') return;
  follower.seqs.push(params.seq);
  if (params.type === 'status' && params.event === 'failed') follower.ends += 1;
}

/** Follows a session, and whenever the connection ends goes on with the last number at the next instance. */
async function follow(follower: Follower, sessionId: string, ports: readonly number[], turn: number): Promise<void> {
  const afterSeq = follower.seqs.at(-1) ?? 0;
  const query = new URLSearchParams({ sessionId, afterSeq: String(afterSeq) });
  const goOn = async (): Promise<void> => {
    again += 1;
    await sleep(Math.random() * BACK_WITHIN_MS);
    await follow(follower, sessionId, ports, turn + 1);
  };
  const port = ports[turn % ports.length] ?? 0;
  follower.connections.push(`${Math.round(performance.now())} ms: port ${port} after ${afterSeq}`);
  const socket = await openBareWebSocket({ port, path: `/acp?${query}` }).catch(() => undefined);
  if (socket === undefined) return goOn();
  let rest = EMPTY;
  const takeFrame = ({ opcode, payload }: ServerFrame): void => {
    if (opcode === TEXT) take(follower, payload.toString());
    else if (opcode === PING) socket.write(frame({ opcode: PONG, payload }));
  };
  socket.on('data', (bytes: Buffer) => {
    const read = readFrames(rest.length === 0 ? bytes : Buffer.concat([rest, bytes]));
    rest = read.rest.length === 0 ? EMPTY : Buffer.from(read.rest);
    for (const one of read.frames) takeFrame(one);
  });
  socket.once('close', () => void goOn());
  socket.once('end', () => socket.destroy());
  socket.resume();
}

/** What a follower missed of what is stored, or got twice. */
function wrongOf(
  { session, seqs, ends, connections }: Follower,
  stored: readonly (readonly number[])[],
): readonly string[] {
  const wanted = stored[session] ?? [];
  const wrong: string[] = [];
  const seen = new Set(seqs);
  const missed = wanted.filter((seq) => !seen.has(seq));
  if (missed.length > 0)
    wrong.push(
      `a follower of session ${session} missed ${missed.join(' ')} of ${wanted.slice(-3).join(' ')} (${connections.join(', ')}; got ${seqs.slice(-3).join(' ')})`,
    );
  if (seqs.some((seq, index) => index > 0 && seq <= (seqs[index - 1] ?? 0)))
    wrong.push(`a follower of session ${session} got ${seqs.join(' ')}`);
  // What the instance had sent and not yet stored when it was killed is lost; it came after all that is stored but the end.
  const known = new Set(wanted);
  const lastWord = wanted.at(-2) ?? 0;
  if (seqs.some((seq) => !known.has(seq) && seq < lastWord))
    wrong.push(`a follower of session ${session} got more than is stored: ${seqs.join(' ')}`);
  if (ends !== 1) wrong.push(`a follower of session ${session} got ${ends} ends`);
  return wrong;
}

async function waitUntil(holds: () => boolean, patienceMs: number): Promise<void> {
  const limit = performance.now() + patienceMs;
  while (!holds() && performance.now() < limit) await sleep(LOOK_EVERY_MS);
}

const answer = (what: FollowersAnswer): void => void process.send?.(what);

process.once('disconnect', () => process.exit());
process.on('message', async (work: FollowersWork) => {
  if (work.kind === 'follow') {
    const { ports, sessions, sockets } = work;
    await inBatches(sockets, async (index) => {
      const follower = { session: index % sessions.length, seqs: [], ends: 0, connections: [] };
      followers.push(follower);
      // Those of one session are spread over all instances.
      await follow(follower, sessions[follower.session] ?? '', ports, Math.floor(index / sessions.length));
    });
    await waitUntil(() => followers.every(({ seqs }) => seqs.length > 0), Number.POSITIVE_INFINITY);
    answer({ kind: 'following', sockets: followers.length });
    return;
  }
  const { stored, patienceMs } = work;
  const isBehind = ({ session, seqs }: Follower) => (seqs.at(-1) ?? 0) < (stored[session]?.at(-1) ?? 0);
  await waitUntil(() => !followers.some(isBehind), patienceMs);
  const violations = followers.flatMap((follower) => wrongOf(follower, stored));
  answer({ kind: 'compared', violations, again, updates: followers.reduce((sum, { seqs }) => sum + seqs.length, 0) });
});
