import { createScope } from '../../test/kit/create-scope.ts';
import { type BridgeClient, openBridgeClient, type SessionUpdate } from './bridge-client.ts';
import { startScriptedBridge } from './scripted-bridge.ts';

export interface ConcurrentOptions {
  readonly sessions: number;
  /** Pieces of text in each session. */
  readonly updates: number;
}

export interface ConcurrentFigures {
  readonly lost: number;
  /** Updates whose number did not follow the one before, and texts that were not what was said. */
  readonly outOfOrder: number;
  readonly updatesPerSecond: number;
}

const SESSIONS_PER_SOCKET = 10;

/** Many sessions that stream at once; each update of each is looked at. */
export async function benchConcurrentSessions({ sessions, updates }: ConcurrentOptions): Promise<ConcurrentFigures> {
  const scope = createScope();
  try {
    const { url } = await startScriptedBridge(scope);
    const clients: BridgeClient[] = [];
    for (let count = 0; count < sessions; count += SESSIONS_PER_SOCKET) clients.push(await openBridgeClient(url));
    scope.after(() => {
      for (const client of clients) client.close();
    });
    const records = new Map<string, SessionRecord>();
    for (const client of clients) client.onUpdate((update) => record(records, update));
    const started = performance.now();
    await Promise.all(
      Array.from({ length: sessions }, (_, index) => {
        const client = clients[Math.floor(index / SESSIONS_PER_SOCKET)] as BridgeClient;
        return client.call('session.start', { sessionId: `bench-${index}`, taskPrompt: `flood ${updates}` });
      }),
    );
    const seconds = (performance.now() - started) / 1000;
    return judge([...records.values()], sessions, updates, seconds);
  } finally {
    await scope.end();
  }
}

interface SessionRecord {
  lastSeq: number;
  pieces: number;
  wrong: number;
}

function record(records: Map<string, SessionRecord>, { sessionId, seq, type, delta }: SessionUpdate): void {
  const known = records.get(sessionId) ?? { lastSeq: 0, pieces: 0, wrong: 0 };
  records.set(sessionId, known);
  if (seq !== known.lastSeq + 1) known.wrong += 1;
  known.lastSeq = seq;
  if (type !== 'delta') return;
  if (delta !== `${known.pieces} `) known.wrong += 1;
  known.pieces += 1;
}

function judge(
  records: readonly SessionRecord[],
  sessions: number,
  updates: number,
  seconds: number,
): ConcurrentFigures {
  const came = records.reduce((sum, { pieces }) => sum + pieces, 0);
  return {
    lost: sessions * updates - came,
    outOfOrder: records.reduce((sum, { wrong }) => sum + wrong, 0),
    updatesPerSecond: came / seconds,
  };
}
