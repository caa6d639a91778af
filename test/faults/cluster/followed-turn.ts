import { setTimeout as sleep } from 'node:timers/promises';

type Row = Readonly<Record<string, unknown>>;

/** What the client that began a turn was told in the end, and when. */
export interface ReportedTurn {
  readonly status?: string;
  readonly code?: string;
  readonly at: number;
  /** How often the call was made again. */
  readonly repeats: number;
}

/** One session with one turn, a client that began it, one that follows it, and what is stored of it. */
export interface FollowedTurn {
  readonly sessionId: string;
  readonly reported: Promise<ReportedTurn>;
  readonly follower: Follower;
  /** The client that began it has its result. */
  hasEnded: boolean;
  /** A call to cancel it was made, whether or not it was answered. */
  wasCancelled?: boolean;
  /** When a call that cancels it was accepted. */
  cancelledAt?: number;
}

export interface StoredTurn {
  readonly turns: readonly Row[];
  readonly seqs: readonly number[];
}

/** So many words, and how long the model waits before each. */
export interface Pace {
  readonly words: number;
  readonly delayMs: number;
}

/** An answer that does not come is one that was lost; a frozen instance keeps its connections open. */
const CALL_MS = 120_000;
const READ_MS = 10_000;
/** So long a client makes its call again. */
const REPEATED_MS = 240_000;
const AGAIN_MS = 500;
/** Errors after which the documents say: try again. */
const TRIED_AGAIN: ReadonlySet<string> = new Set([
  'OWNER_UNREACHABLE',
  'SHUTTING_DOWN',
  'STORAGE_UNAVAILABLE',
  'SESSION_BUSY',
]);

export const modelOf = ({ delayMs }: Pace) => `demo/echo?delay=${delayMs}`;
export const routingOf = (pace: Pace) => ({ explicitProviderId: 'builtin', explicitModel: modelOf(pace) });

export async function callBridge(url: string, method: string, params: object, key?: string): Promise<Row> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key !== undefined && { 'idempotency-key': key }) },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'call', method, params }),
    signal: AbortSignal.timeout(CALL_MS),
  });
  return (await response.json()) as Row;
}

/**
 * Makes a call as the documents say: one that was lost, or that was refused with an error that says so, is made again with its
 * key. Returns the first other answer.
 */
export async function callUntilAnswered(
  url: string,
  method: string,
  params: object,
  key: string,
): Promise<{ readonly result?: Row; readonly code?: string; readonly repeats: number }> {
  const startedAt = performance.now();
  let code = 'no answer';
  for (let repeats = 0; performance.now() - startedAt < REPEATED_MS; repeats += 1) {
    if (repeats > 0) await sleep(AGAIN_MS);
    // What HAProxy answers for an instance that was lost is no JSON.
    const { result, error } = await callBridge(url, method, params, key).catch((): Row => ({}));
    if (result !== undefined) return { result: result as Row, repeats };
    if (error === undefined) continue;
    code = String((error as { readonly data?: Row }).data?.code);
    if (!TRIED_AGAIN.has(code)) return { code, repeats };
  }
  return { code, repeats: Number.POSITIVE_INFINITY };
}

/** So many words, each another one. */
export function numberedText(words: number): string {
  return Array.from({ length: words }, (_, index) => `word${index}`).join(' ');
}

/** Begins a turn that says each word after a pause. */
export async function beginTurn(url: string, sessionId: string, pace: Pace): Promise<ReportedTurn> {
  const params = { sessionId, taskPrompt: numberedText(pace.words), routing: routingOf(pace) };
  const { result, code = result?.code, repeats } = await callUntilAnswered(url, 'session.start', params, sessionId);
  return {
    ...(result !== undefined && { status: String(result.status) }),
    ...(code !== undefined && { code: String(code) }),
    at: performance.now(),
    repeats,
  };
}

async function readSession(url: string, sessionId: string, path: string): Promise<Row> {
  const signal = AbortSignal.timeout(READ_MS);
  const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/${path}`, { signal });
  return (await response.json()) as Row;
}

/** All stored updates of a session. */
export async function readUpdates(
  url: string,
  sessionId: string,
): Promise<readonly (Row & { readonly seq: number })[]> {
  const all: (Row & { readonly seq: number })[] = [];
  for (;;) {
    const { updates = [] } = await readSession(url, sessionId, `updates?afterSeq=${all.at(-1)?.seq ?? 0}`);
    if ((updates as typeof all).length === 0) return all;
    all.push(...(updates as typeof all));
  }
}

export async function readTurn(url: string, sessionId: string): Promise<StoredTurn> {
  const { turns = [] } = await readSession(url, sessionId, 'turns');
  const updates = await readUpdates(url, sessionId);
  return { turns: turns as readonly Row[], seqs: updates.map(({ seq }) => seq) };
}

export interface Follower {
  readonly seqs: readonly number[];
  stop(): void;
}

/** Follows a session as the documents say: whenever its connection ends it goes on with its last number, at any instance. */
export function followSession(sessionId: string, url: string): Follower {
  const seqs: number[] = [];
  let socket: WebSocket | undefined;
  let isStopped = false;

  function connect(): void {
    const query = new URLSearchParams({ sessionId, afterSeq: String(seqs.at(-1) ?? 0) });
    const opened = new WebSocket(`${url.replace(/^http/, 'ws')}/acp?${query}`);
    socket = opened;
    opened.addEventListener('message', ({ data }) => {
      const { method, params } = JSON.parse(String(data)) as { readonly method?: string; readonly params: Row };
      if (method === 'session.update') seqs.push(Number(params.seq));
    });
    opened.addEventListener('error', () => undefined);
    opened.addEventListener('close', () => {
      if (!isStopped) void sleep(200).then(() => !isStopped && connect());
    });
  }
  connect();
  return {
    seqs,
    stop() {
      isStopped = true;
      socket?.close();
    },
  };
}

/**
 * What does not hold of a turn that has ended, and of what its clients were told. `mayBeInterrupted`: the instance that ran it may
 * have been lost.
 */
export function checkTurn(
  turn: FollowedTurn,
  reported: ReportedTurn,
  { turns, seqs }: StoredTurn,
  mayBeInterrupted: boolean,
): string[] {
  const { sessionId, follower, cancelledAt, wasCancelled } = turn;
  const wrong: string[] = [];
  const [first] = turns;
  if (turns.length !== 1) wrong.push(`${sessionId} is stored as ${turns.length} turns`);
  if (reported.status === undefined) wrong.push(`${sessionId} was refused with ${reported.code}`);
  else if (reported.status !== first?.status)
    wrong.push(`${sessionId} was reported as ${reported.status} and is stored as ${first?.status}`);
  const isRight =
    first?.status === 'completed' ||
    (first?.status === 'cancelled' && wasCancelled === true) ||
    (first?.status === 'failed' && first.code === 'TURN_INTERRUPTED' && mayBeInterrupted);
  if (!isRight) wrong.push(`${sessionId} ended as ${first?.status} ${first?.code ?? ''}`);
  if (!isAscending(seqs)) wrong.push(`${sessionId} has numbers twice or out of order: ${seqs.join(' ')}`);
  if (!isAscending(follower.seqs)) wrong.push(`a follower of ${sessionId} got ${follower.seqs.join(' ')}`);
  const seen = new Set(follower.seqs);
  const missed = seqs.filter((seq) => !seen.has(seq));
  if (missed.length > 0) wrong.push(`a follower of ${sessionId} missed ${missed.join(' ')}`);
  const isLate = cancelledAt !== undefined && reported.at - cancelledAt > EFFECTIVE_MS;
  if (isLate && reported.repeats === 0 && reported.status === 'completed')
    wrong.push(`${sessionId} was completed although it was cancelled`);
  return wrong;
}

/** A turn that ends by itself just when it is cancelled may be completed. */
const EFFECTIVE_MS = 1000;

export function isAscending(numbers: readonly number[]): boolean {
  return numbers.every((number, index) => index === 0 || number > (numbers[index - 1] ?? 0));
}
