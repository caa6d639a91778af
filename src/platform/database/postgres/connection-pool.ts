import type { CustomTypesConfig, PoolClient } from 'pg';
import { systemClock } from '../../clock/clock.ts';
import { AppError } from '../../errors/app-error.ts';
import type { SqlValue } from '../statement.ts';

/** The connections of this process to a PostgreSQL database. All services share them, each with a schema of its own. */
export interface ConnectionPool {
  /** How many connections there are at most. */
  readonly size: number;
  /** Whether connections pass a pooler in transaction mode, which keeps no settings of a connection. */
  readonly isPooled: boolean;
  join(schema: string): PoolShare;
  /** Closes the connections, when all of them are given back. */
  close(): Promise<void>;
}

/** The share of one service, and its schema, in the pool. One connection is always left for each service. */
export interface PoolShare {
  /** Differs from that of other shares: for names of statements, which belong to a connection. */
  readonly number: number;
  /**
   * A connection whose statements find the tables of the schema. Waits until one is free, for five seconds; the urgent ones
   * get it before all others.
   */
  take(isUrgent: boolean): Promise<PoolClient>;
  give(client: PoolClient, broken: boolean): void;
  leave(): void;
}

interface Share {
  used: number;
  /** In order; each is called when it has a connection. */
  readonly urgent: Set<Waiter>;
  readonly waiting: Set<Waiter>;
}

interface Waiter {
  readonly order: number;
  grant(): void;
}

export const DEFAULT_CONNECTIONS = 10;
const CONNECT_TIMEOUT_MS = 5000;
const IDLE_TIMEOUT_MS = 30_000;
export const STATEMENT_TIMEOUT_MS = 30_000;
/** The server releases the locks of a process that stalls within a transaction. */
export const IDLE_TRANSACTION_TIMEOUT_MS = 60_000;
const MAX_WAITING = 10_000;
/** The schema that a new connection must report; otherwise something between dropped our startup parameters. */
const NO_SCHEMA = 'trestle_none';

export async function openConnectionPool(
  url: string,
  { isPooled = false, size = DEFAULT_CONNECTIONS } = {},
): Promise<ConnectionPool> {
  const { Pool } = await import('pg');
  const pool = new Pool({
    connectionString: isPooled ? url : withSearchPath(url, NO_SCHEMA),
    max: size,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    ...(!isPooled && {
      statement_timeout: STATEMENT_TIMEOUT_MS,
      idle_in_transaction_session_timeout: IDLE_TRANSACTION_TIMEOUT_MS,
    }),
    keepAlive: true,
    types: portableTypes,
  });
  // Ignored, because idle connections break, such as at a restart of the server, and the next caller gets a new one.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => void client.on('error', () => undefined));
  const places = createPlaces(size);
  const schemas = new WeakMap<PoolClient, string>();
  let joined = 0;

  async function useSchema(client: PoolClient, schema: string): Promise<void> {
    const known = schemas.get(client);
    if (known === schema) return;
    const text = `SELECT current_setting('search_path') AS path, set_config('search_path', '${schema}', false)`;
    const query = { text, query_timeout: CONNECT_TIMEOUT_MS };
    const { rows } = await client.query<{ readonly path: string }>(query);
    // An unconfigured pooler: the settings of one connection would apply to the statements of others.
    if (rows[0]?.path !== (known ?? NO_SCHEMA)) throw new Error('unsupported startup parameter: ignored search_path');
    schemas.set(client, schema);
  }

  /** Skips idle connections that were lost, until one works or the time is up. */
  async function connect(schema: string): Promise<PoolClient> {
    const until = systemClock.monotonic() + CONNECT_TIMEOUT_MS;
    for (;;) {
      const client = await pool.connect();
      if (isPooled) return client;
      try {
        await useSchema(client, schema);
        return client;
      } catch (error) {
        client.release(true);
        if (!schemas.has(client) || systemClock.monotonic() > until) throw error;
      }
    }
  }

  return {
    size,
    isPooled,
    join(schema) {
      if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) throw new TypeError(`"${schema}" cannot be the name of a schema`);
      const share = places.join();
      joined += 1;
      return {
        number: joined,
        async take(isUrgent) {
          await places.take(share, isUrgent);
          try {
            return await connect(schema);
          } catch (error) {
            places.give(share);
            throw error;
          }
        },
        give(client, broken) {
          client.release(broken);
          places.give(share);
        },
        leave: () => places.leave(share),
      };
    },
    async close() {
      if (!pool.ending) await pool.end();
    },
  };
}

/**
 * Hands out the places of the pool in the order of the calls, but leaves one for each share that has none: slow statements of
 * one service do not keep the heartbeats of another one waiting, and work that waits for another service ends.
 */
function createPlaces(size: number) {
  const shares = new Set<Share>();
  let used = 0;
  let order = 0;
  let waiting = 0;

  function mayTake(share: Share): boolean {
    if (used >= size) return false;
    if (share.used === 0) return true;
    let without = 0;
    for (const other of shares) if (other !== share && other.used === 0) without += 1;
    return size - used > without;
  }

  function grant(share: Share): void {
    used += 1;
    share.used += 1;
  }

  function firstOf({ urgent: [urgent], waiting: [waiter] }: Share): Waiter | undefined {
    return urgent ?? waiter;
  }

  /** The one that has waited longest among those that may have a place. */
  function nextWaiter(): Share | undefined {
    let next: Share | undefined;
    let first = Number.POSITIVE_INFINITY;
    for (const share of shares) {
      const waiter = firstOf(share);
      if (waiter === undefined || waiter.order > first || !mayTake(share)) continue;
      next = share;
      first = waiter.order;
    }
    return next;
  }

  function grantNext(): void {
    for (let share = nextWaiter(); share !== undefined; share = nextWaiter()) {
      const waiter = firstOf(share);
      grant(share);
      waiter?.grant();
    }
  }

  function wait(line: Set<Waiter>, isUrgent: boolean): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const cancel = systemClock.after(CONNECT_TIMEOUT_MS, () => {
      remove();
      reject(new Error('no connection became free in time'));
    });
    order += 1;
    const waiter: Waiter = {
      order: isUrgent ? 0 : order,
      grant() {
        remove();
        resolve();
      },
    };
    function remove(): void {
      cancel();
      waiting -= 1;
      line.delete(waiter);
    }
    waiting += 1;
    line.add(waiter);
    return promise;
  }

  return {
    join(): Share {
      const share: Share = { used: 0, urgent: new Set(), waiting: new Set() };
      shares.add(share);
      return share;
    },
    async take(share: Share, isUrgent: boolean): Promise<void> {
      if (firstOf(share) === undefined && mayTake(share)) return grant(share);
      if (waiting >= MAX_WAITING) throw new AppError('OVERLOADED');
      return wait(isUrgent ? share.urgent : share.waiting, isUrgent);
    },
    give(share: Share): void {
      used -= 1;
      share.used -= 1;
      grantNext();
    },
    leave(share: Share): void {
      shares.delete(share);
      grantNext();
    },
  };
}

function withSearchPath(url: string, schema: string): string {
  // The error of `new URL` would show the address, and with it the password.
  if (!URL.canParse(url)) throw new TypeError('the address of the database is not a URL');
  const address = new URL(url);
  const given = address.searchParams.get('options');
  address.searchParams.set('options', `${given === null ? '' : `${given} `}-c search_path=${schema}`);
  return address.href;
}

/** Object ids of PostgreSQL's own types; they never change. */
const BOOLEAN = 16;
const BYTES = 17;
const NUMERIC = 1700;
const INTEGERS = new Set([20, 21, 23]);
const FLOATS = new Set([700, 701]);

/** Values come back as SQLite gives them: exact integers, flags as 1 and 0, plain byte arrays, all else as text. */
const portableTypes: CustomTypesConfig = {
  getTypeParser: (type: number) => (text: string | Buffer) => parseValue(type, String(text)),
};

function parseValue(type: number, text: string): SqlValue {
  if (INTEGERS.has(type)) return parseInteger(text);
  if (FLOATS.has(type)) return Number(text);
  // The sum of 64-bit integers has this type.
  if (type === NUMERIC) return /^-?\d+$/.test(text) ? parseInteger(text) : Number(text);
  if (type === BOOLEAN) return text === 't' ? 1 : 0;
  if (type === BYTES) return Uint8Array.from(Buffer.from(text.slice(2), 'hex'));
  return text;
}

function parseInteger(text: string): number | bigint {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}
