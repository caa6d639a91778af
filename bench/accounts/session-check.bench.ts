import type { AddressInfo } from 'node:net';
import { fastify } from 'fastify';
import { createSessionCheck } from '../../src/accounts/login/session-check.ts';
import { createSessionStore } from '../../src/accounts/storage/session-store.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { SESSIONS, seedAccounts, sessionTokenOf } from '../../test/kit/accounts/seed-accounts.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { temporaryFolder } from '../../test/kit/running-program.ts';
import { type BenchServer, type Rates, type Rounds, takeTurns } from '../report/take-turns.ts';
import { type AccountsServer, startAccountsServer } from './accounts-server.ts';
import type { SessionRound } from './session-client.ts';

export interface SessionCheckBench {
  /** `GET /api/auth/session` by bearer token, on one process. */
  readonly ours: Rates;
  /** A bare Fastify route that answers as many bytes. */
  readonly bound: Rates;
  /** The check by itself, without HTTP: per second. */
  readonly checks: readonly number[];
  /** Sessions that were ended under load and still answered to afterwards, of so many. */
  readonly seenLate: number;
  readonly revoked: number;
}

const USERS = 10_000;
const CONNECTIONS = 32;
/** Ended one by one; the load uses the others. */
const REVOKED = 200;
const CHECKS_PER_TURN = 100;

export async function benchSessionChecks(rounds: Rounds): Promise<SessionCheckBench> {
  const scope = createScope();
  try {
    const folder = await temporaryFolder(scope);
    await seedAccounts({ folder, users: USERS });
    const server = await startAccountsServer(folder);
    scope.after(() => server.close());
    const tokens = Array.from({ length: 1000 }, (_, index) => sessionTokenOf(REVOKED + index));
    const load = { connections: CONNECTIONS, tokens };
    const answer = await (await askFor(server, tokens[0] ?? '')).text();
    const bare = await startBareServer(answer, load);
    const ours = { round: { ...load, port: server.port }, close: async () => undefined };
    const rates = await takeTurns(new URL('./session-client.ts', import.meta.url), bare, ours, rounds);
    const checks = await checkAlone(server, rounds);
    return { ...rates, checks, revoked: REVOKED, seenLate: await revokeUnderLoad(server) };
  } finally {
    await scope.end();
  }
}

type Server = BenchServer<Omit<SessionRound, 'ms'>>;

/** A bare route that sends this text. */
export async function startBareServer(answer: string, load: Omit<SessionRound, 'ms' | 'port'>): Promise<Server> {
  const server = fastify({ logger: false });
  server.get('/api/auth/session', (_request, reply) => reply.type('application/json').send(answer));
  await server.listen({ host: '127.0.0.1', port: 0 });
  const { port } = server.server.address() as AddressInfo;
  return {
    round: { ...load, port },
    close() {
      server.server.closeAllConnections();
      return server.close();
    },
  };
}

async function checkAlone(server: AccountsServer, { rounds, roundMs }: Rounds): Promise<readonly number[]> {
  const check = createSessionCheck({
    store: createSessionStore(server.database),
    settings: () => ({ sessions: SESSIONS }),
    clock: systemClock,
    seen: { add: () => true },
  });
  const perSecond: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const started = performance.now();
    let count = 0;
    while (performance.now() - started < roundMs / 2) {
      for (let each = 0; each < CHECKS_PER_TURN; each += 1, count += 1) {
        if ((await check(sessionTokenOf(count % USERS), 'bearer')) === undefined) throw new Error('a session is gone');
      }
    }
    perSecond.push((count * 1000) / (performance.now() - started));
  }
  return perSecond;
}

/** How many sessions still count after the answer to their end, while others are being checked all the time. */
async function revokeUnderLoad(server: AccountsServer): Promise<number> {
  let running = true;
  const others = Array.from({ length: 8 }, async (_, index) => {
    while (running) await (await askFor(server, sessionTokenOf(REVOKED + index))).arrayBuffer();
  });
  let late = 0;
  for (let index = 0; index < REVOKED; index += 1) {
    const token = sessionTokenOf(index);
    if ((await askFor(server, token)).status !== 200) throw new Error('a session is gone before its end');
    const ended = await askFor(server, token, 'DELETE');
    if (ended.status !== 204) throw new Error(`a session was not ended: ${ended.status}`);
    if ((await askFor(server, token)).status !== 401) late += 1;
  }
  running = false;
  await Promise.all(others);
  return late;
}

export function askFor({ url }: Pick<AccountsServer, 'url'>, token: string, method = 'GET'): Promise<Response> {
  return fetch(`${url}/api/auth/session`, { method, headers: { authorization: `Bearer ${token}` } });
}
