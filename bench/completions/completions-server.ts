import { openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createCompletions } from '../../src/completions/create-completions.ts';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../src/completions/storage/completions-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { resolveSettings } from '../../src/platform/config/load-configuration.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import { createListener } from '../../src/platform/http/listener.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { createBufferedOutput } from '../../src/platform/log/log-output.ts';
import { createLogger } from '../../src/platform/log/logger.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';

const MASTER_KEY = 'bench-master-key-0123456789';

export interface CompletionsServer {
  readonly port: number;
  /** Of a key with limits. */
  readonly headers: Readonly<Record<string, string>>;
  close(): Promise<unknown>;
}

/** The settings file that puts both dialects of the scripted model API behind us. */
export function configurationFor(upstreamPort: number): string {
  const base_url = `http://127.0.0.1:${upstreamPort}/v1`;
  return JSON.stringify({
    completions: {
      master_key: MASTER_KEY,
      apis: {
        bench: { dialect: 'openai', base_url, api_key: 'bench-upstream-key' },
        foreign: { dialect: 'anthropic', base_url, api_key: 'bench-upstream-key' },
      },
      prices: { 'bench/small': { input: 0.000001, output: 0.000002 } },
    },
  });
}

export const MASTER = { authorization: `Bearer ${MASTER_KEY}` };

/** Creates a key with limits that no benchmark reaches, and returns the headers of a call with it. */
export async function issueKey(url: string): Promise<Readonly<Record<string, string>>> {
  const issued = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { ...MASTER, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'bench', requests_per_minute: 1_000_000_000, tokens_per_minute: 1_000_000_000_000 }),
  });
  const { key } = (await issued.json()) as { key: string };
  return { authorization: `Bearer ${key}` };
}

/** Completions with everything on: an issued key with limits, metering into SQLite, metrics, a log line for each call. */
export async function startCompletionsServer(upstreamPort: number): Promise<CompletionsServer> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-bench-'));
  const { settings } = resolveSettings({
    declaration: settingsDeclaration,
    file: { text: configurationFor(upstreamPort), name: 'trestle.yaml', directory: folder, mode: 0o600 },
    environment: {},
    flags: {},
    homeDirectory: folder,
    workingDirectory: folder,
  });
  const clock = systemClock;
  const output = createBufferedOutput({ clock, descriptor: openSync('/dev/null', 'w') });
  const logger = createLogger({ level: 'info', format: 'json', output, clock, secrets: () => [] });
  const database = await openDatabase<CompletionsSchema>({
    name: 'completions',
    migrations: completionsMigrations,
    location: { engine: 'sqlite', file: join(folder, 'completions.db') },
    clock,
  });
  const completions = createCompletions({
    settings: settings.completions,
    usageRetentionMs: 0,
    otlpEndpoint: '',
    programVersion: '0.0.0',
    database,
    environment: {},
    clock,
    randomness: systemRandomness,
    makeId: createSortableIds(clock, systemRandomness),
    logger,
  });
  const listener = createListener({
    surfaces: [completions.surface],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger,
    requestLines: output,
    clock,
    randomness: systemRandomness,
  });
  const { port, url } = await listener.start();
  return {
    port,
    headers: await issueKey(url),
    async close() {
      await listener.close();
      await completions.stop();
      await database.close();
      await rm(folder, { recursive: true });
    },
  };
}
