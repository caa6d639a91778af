import type { Client } from 'pg';
import { type Clock, pause, withinTime } from '../../clock/clock.ts';
import type { Runtime } from '../../runtime/runtime.ts';
import type { EngineName } from '../database.ts';
import type { Runnable } from '../statement.ts';

/**
 * Short messages between the processes that share a PostgreSQL database (LISTEN and NOTIFY). They only make things sooner:
 * what was missed is found by looking, so every listener also looks by itself now and then.
 */
export interface WakeUps {
  /** Tells all processes, this one too. Several messages of one topic within 50 ms become one. */
  send(topic: string, subject: string): void;
  /** Calls the listener with the subject of each message; with an empty one when messages may have been missed. */
  on(topic: string, listener: (subject: string) => void): void;
  /** Whether messages arrive. If not, what others have changed is known only by looking. */
  isListening(): boolean;
  stop(): Promise<void>;
}

interface WakeUpsOptions extends Pick<Runtime, 'logger'> {
  readonly clock: Clock;
  /** A direct connection: a pooler in transaction mode passes no notifications. */
  readonly url: string;
}

const CHANNEL = 'trestle';
const NOTIFY = 'SELECT pg_notify($1, $2)';
/** NOTIFY takes a lock for the whole server at its commit, so messages are gathered. */
const GATHER_MS = 50;
const CONNECT_MS = 5_000;
const AGAIN_MS = 1_000;
/** How often the connection is checked, because a broken one may look like one without messages. */
const CHECK_MS = 5_000;
/** PostgreSQL takes at most 8000 bytes. */
const MAX_SUBJECT_LENGTH = 7_000;
const SEPARATOR = '\n';

/** For a batch: sends a message if and only if the batch is committed. Empty on SQLite, where no other instance listens. */
export function wakeUpStatements(engine: EngineName, topic: string, subject: string): readonly Runnable[] {
  if (engine !== 'postgres') return [];
  return [{ sql: NOTIFY, parameters: [CHANNEL, `${topic}${SEPARATOR}${subject}`] }];
}

export async function openWakeUps({ url, clock, logger }: WakeUpsOptions): Promise<WakeUps> {
  const { Client } = await import('pg');
  const listeners = new Map<string, ((subject: string) => void)[]>();
  const gathered = new Map<string, Set<string>>();
  const stopped = new AbortController();
  let current: Client | undefined;
  /** The last statement of the connection: the next one is sent when it is answered. */
  let underWay: Promise<unknown> = Promise.resolve();

  function tell(topic: string, subject: string): void {
    for (const listener of listeners.get(topic) ?? []) listener(subject);
  }

  function tellAll(): void {
    for (const topic of listeners.keys()) tell(topic, '');
  }

  async function connect(): Promise<{ readonly client: Client; readonly ended: Promise<unknown> }> {
    const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_MS, keepAlive: true });
    const { promise: ended, resolve } = Promise.withResolvers<unknown>();
    client.on('error', resolve);
    client.on('end', () => resolve(undefined));
    client.on('notification', ({ payload = '' }) => {
      const [topic = '', ...subjects] = payload.split(SEPARATOR);
      for (const subject of subjects) tell(topic, subject);
    });
    underWay = Promise.resolve();
    try {
      await client.connect();
      await ask(client, `LISTEN ${CHANNEL}`);
      return { client, ended };
    } catch (error) {
      void client.end().catch(() => undefined);
      throw error;
    }
  }

  async function ask(client: Client, text: string, values: readonly string[] = []): Promise<void> {
    const answer = underWay.then(() => client.query(text, [...values]));
    // Handled here, because it may fail with its connection after the timeout.
    underWay = answer.catch(() => undefined);
    await withinTime(clock, CONNECT_MS, answer, () => {
      throw new Error('the database does not answer');
    });
  }

  /** Listens until the connection is lost. */
  async function listen(): Promise<void> {
    const { client, ended } = await connect();
    current = client;
    // Messages since the last connection were missed.
    tellAll();
    let isOpen = true;
    void ended.then(() => {
      isOpen = false;
    });
    try {
      while (isOpen && !stopped.signal.aborted) {
        await Promise.race([ended, pause(clock, CHECK_MS, stopped.signal)]);
        if (isOpen && !stopped.signal.aborted) await ask(client, 'SELECT 1');
      }
    } finally {
      current = undefined;
      void client.end().catch(() => undefined);
    }
  }

  async function keepListening(): Promise<void> {
    while (!stopped.signal.aborted) {
      await listen().catch((error: unknown) =>
        logger.warn({ err: error }, 'messages of other instances do not arrive; trying again'),
      );
      await pause(clock, AGAIN_MS, stopped.signal);
    }
  }

  function flush(topic: string): void {
    const subjects = [...(gathered.get(topic) ?? [])];
    gathered.delete(topic);
    if (subjects.length === 0 || current === undefined) return;
    const all = subjects.join(SEPARATOR);
    const payload = `${topic}${SEPARATOR}${all.length > MAX_SUBJECT_LENGTH ? '' : all}`;
    ask(current, NOTIFY, [CHANNEL, payload]).catch(() => undefined);
  }

  const listening = keepListening();
  return {
    send(topic, subject) {
      const waiting = gathered.get(topic);
      if (waiting !== undefined) {
        waiting.add(subject);
        return;
      }
      // The first message leaves without delay, and those after it together.
      gathered.set(topic, new Set([subject]));
      flush(topic);
      gathered.set(topic, new Set());
      clock.after(GATHER_MS, () => flush(topic));
    },
    on(topic, listener) {
      listeners.set(topic, [...(listeners.get(topic) ?? []), listener]);
    },
    isListening: () => current !== undefined,
    async stop() {
      stopped.abort();
      await listening;
    },
  };
}
