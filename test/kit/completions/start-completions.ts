import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { type Completions, createCompletions } from '../../../src/completions/create-completions.ts';
import type { KeyOwners } from '../../../src/completions/metered-keys.ts';
import type { CompletionsSettings } from '../../../src/completions/settings.ts';
import { completionsMigrations } from '../../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { createHttpMetrics } from '../../../src/platform/http/http-metrics.ts';
import { createListener, type Listener } from '../../../src/platform/http/listener.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { handOnDatabaseThread } from '../hand-on-database-thread.ts';
import { openServiceDatabase } from '../open-service-database.ts';
import { resolveTrestle } from '../resolve-trestle.ts';
import type { Scope } from '../running-program.ts';

export interface RunningCompletions {
  readonly url: string;
  readonly completions: Completions;
  readonly listener: Listener;
  readonly database: Database<CompletionsSchema>;
  post(path: string, body: unknown, options?: PostOptions): Promise<Response>;
  /** Everything that was logged, as text. */
  log(): string;
  /** All usage, by the key, once it is stored. */
  usage(groupBy?: string): Promise<{ data: Record<string, number>[]; total: Record<string, number> }>;
}

export interface PostOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface StartOptions {
  /** The part of the file under `completions:`. */
  readonly settings?: object;
  readonly environment?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  readonly owners?: KeyOwners;
  /** Where spans go. Absent: none are made. */
  readonly otlpEndpoint?: string;
  /** For ever, unless it is said. */
  readonly usageRetentionMs?: number;
  /** What was asked and answered in calls: as long as their records, unless it is said. */
  readonly contentRetentionMs?: number;
}

/** Retries at once: how long they wait is for the tests of the retry itself. */
const IMPATIENT = { ...systemRandomness, below: () => 0 };

export function settingsOf(part: object): CompletionsSettings {
  const { settings, problems } = resolveTrestle(JSON.stringify({ completions: part }));
  if (problems.length > 0) throw new Error(JSON.stringify(problems));
  return settings.completions;
}

/** An API of OpenAI's dialect at this address, under the name `lab`. */
export function labAt(url: string, rest: object = {}): object {
  return { apis: { lab: { dialect: 'openai', base_url: url, api_key: LAB_KEY } }, ...rest };
}

export const LAB_KEY = 'lab-key-5f2c8a91d4';

/** Completions on a listener of this process: real HTTP on both sides, a real database. */
export async function startCompletions(scope: Scope, options: StartOptions = {}): Promise<RunningCompletions> {
  const { environment = {}, clock = systemClock } = options;
  const folder = await mkdtemp(join(tmpdir(), 'trestle-completions-'));
  const lines: string[] = [];
  const sink = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const logger = pino({ level: 'debug' }, sink);
  const database = await openServiceDatabase<CompletionsSchema>({
    name: 'completions',
    migrations: completionsMigrations,
    location: { engine: 'sqlite', file: join(folder, 'completions.db') },
    clock: systemClock,
  });
  const completions = createCompletions({
    settings: settingsOf(options.settings ?? {}),
    usageRetentionMs: options.usageRetentionMs ?? 0,
    contentRetentionMs: options.contentRetentionMs ?? 0,
    otlpEndpoint: options.otlpEndpoint ?? '',
    programVersion: '0.0.0',
    database,
    environment,
    clock,
    owners: options.owners,
    randomness: IMPATIENT,
    makeId: createSortableIds(systemClock, systemRandomness),
    logger,
  });
  const listener = createListener({
    surfaces: [completions.surface],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger,
    clock: systemClock,
    randomness: systemRandomness,
    limits: { lingerMs: 200, closeTimeoutMs: 500 },
  });
  const { url } = await listener.start();
  scope.after(async () => {
    await listener.close();
    await completions.stop();
    handOnDatabaseThread();
    await database.close();
    await rm(folder, { recursive: true, force: true });
  });
  return {
    url,
    completions,
    listener,
    database,
    log: () => lines.join(''),
    post: (path, body, { headers = {}, signal } = {}) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...(signal !== undefined && { signal }),
      }),
    async usage(groupBy = 'model') {
      const response = await fetch(`${url}/v1/usage?group_by=${groupBy}`);
      return (await response.json()) as { data: Record<string, number>[]; total: Record<string, number> };
    },
  };
}

export const HELLO = { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }] };

export interface ReadStream {
  /** The data of each event. */
  readonly events: string[];
  readonly text: string;
  readonly error: Record<string, unknown> | undefined;
  readonly done: boolean;
}

/** Reads a stream as a client does. */
export async function readStream(response: Response): Promise<ReadStream> {
  return parseStream(await response.text());
}

export function parseStream(body: string): ReadStream {
  const events = body
    .split(/\n\n|\r\n\r\n|\r\r/)
    .filter((event) => event.startsWith('data:'))
    .map((event) => event.replace(/^data: ?/, ''));
  const chunks = events.filter((data) => data !== '[DONE]').map((data) => JSON.parse(data));
  return {
    events,
    text: chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join(''),
    error: chunks.find((chunk) => chunk.error !== undefined)?.error,
    done: events.at(-1) === '[DONE]',
  };
}
