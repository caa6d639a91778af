import { setTimeout as sleep } from 'node:timers/promises';

type Row = Readonly<Record<string, unknown>>;

/** What the client that began a turn was told, and when; undefined where its connection broke. */
export interface ReportedTurn {
  readonly status?: string;
  readonly code?: string;
  readonly at: number;
}

/** One session with one turn, a client that began it, one that follows it, and what is stored of it. */
export interface FollowedTurn {
  readonly sessionId: string;
  readonly reported: Promise<ReportedTurn>;
  readonly follower: Follower;
  /** When a call that cancels it was accepted. */
  cancelledAt?: number;
}

export interface StoredTurn {
  readonly turns: readonly Row[];
  readonly seqs: readonly number[];
}

/** An answer that does not come is one that was lost; a frozen instance keeps its connections open. */
const CALL_MS = 120_000;
export const MODEL = 'demo/echo?delay=50';
export const ROUTING = { explicitProviderId: 'builtin', explicitModel: MODEL };

export async function callBridge(url: string, method: string, params: object): Promise<Row> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'call', method, params }),
    signal: AbortSignal.timeout(CALL_MS),
  });
  return (await response.json()) as Row;
}

/** So many words, each another one. */
export function numberedText(words: number): string {
  return Array.from({ length: words }, (_, index) => `word${index}`).join(' ');
}

/** Begins a turn that says each word after a pause. */
export async function beginTurn(url: string, sessionId: string, words: number): Promise<ReportedTurn> {
  const taskPrompt = numberedText(words);
  try {
    const { result, error } = await callBridge(url, 'session.start', { sessionId, taskPrompt, routing: ROUTING });
    const at = performance.now();
    if (result !== undefined) {
      const { status, code } = result as Row;
      return { status: String(status), ...(code !== undefined && { code: String(code) }), at };
    }
    const { data } = error as { readonly data?: Row };
    return { code: String(data?.code), at };
  } catch {
    return { at: performance.now() };
  }
}

export async function readTurn(url: string, sessionId: string): Promise<StoredTurn> {
  const get = async (path: string) =>
    (await (
      await fetch(`${url}/api/bridge/sessions/${sessionId}/${path}`, { signal: AbortSignal.timeout(10_000) })
    ).json()) as Row;
  const { turns = [] } = await get('turns');
  const seqs: number[] = [];
  for (;;) {
    const { updates = [] } = await get(`updates?afterSeq=${seqs.at(-1) ?? 0}`);
    const more = (updates as readonly { readonly seq: number }[]).map(({ seq }) => seq);
    if (more.length === 0) return { turns: turns as readonly Row[], seqs };
    seqs.push(...more);
  }
}

export interface Follower {
  readonly seqs: readonly number[];
  stop(): void;
}

/** Follows a session as the documents say: whenever its connection ends it goes on with its last number, at any instance. */
export function followSession(sessionId: string, anyUrl: () => string): Follower {
  const seqs: number[] = [];
  let socket: WebSocket | undefined;
  let isStopped = false;

  function connect(): void {
    const query = new URLSearchParams({ sessionId, afterSeq: String(seqs.at(-1) ?? 0) });
    const opened = new WebSocket(`${anyUrl().replace(/^http/, 'ws')}/acp?${query}`);
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

/** What does not hold of a turn that has ended, and of what its clients were told. */
export function checkTurn(turn: FollowedTurn, reported: ReportedTurn, { turns, seqs }: StoredTurn): string[] {
  const { sessionId, follower, cancelledAt } = turn;
  const wrong: string[] = [];
  const [first] = turns;
  if (turns.length > 1) wrong.push(`${sessionId} was begun ${turns.length} times`);
  if (reported.status !== undefined && first === undefined) wrong.push(`${sessionId} was reported and is not stored`);
  if (reported.status !== undefined && first !== undefined && reported.status !== first.status)
    wrong.push(`${sessionId} was reported as ${reported.status} and is stored as ${first.status}`);
  if (reported.code === 'INTERNAL_ERROR') wrong.push(`${sessionId} was reported as INTERNAL_ERROR`);
  if (!isAscending(seqs)) wrong.push(`${sessionId} has numbers twice or out of order: ${seqs.join(' ')}`);
  if (!isAscending(follower.seqs)) wrong.push(`a follower of ${sessionId} got ${follower.seqs.join(' ')}`);
  const seen = new Set(follower.seqs);
  const missed = seqs.filter((seq) => !seen.has(seq));
  if (missed.length > 0) wrong.push(`a follower of ${sessionId} missed ${missed.join(' ')}`);
  const isLate = cancelledAt !== undefined && reported.at - cancelledAt > EFFECTIVE_MS;
  if (isLate && reported.status === 'completed') wrong.push(`${sessionId} was completed although it was cancelled`);
  return wrong;
}

/** A turn that ends by itself just when it is cancelled may be completed. */
const EFFECTIVE_MS = 1000;

function isAscending(numbers: readonly number[]): boolean {
  return numbers.every((number, index) => index === 0 || number > (numbers[index - 1] ?? 0));
}
