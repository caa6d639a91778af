import { type PriceOf, priceFrom } from '../../../src/completions/apis/prices.ts';
import type { Admission, CallOutcome, KeyHolder } from '../../../src/completions/keys/admission.ts';
import { createMeteredKeys, type MeteredKeys, type MeteredKeysOptions } from '../../../src/completions/metered-keys.ts';
import { completionsMigrations } from '../../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import type { RequestHead } from '../../../src/platform/http/surface.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';

export const completionsDatabase = { name: 'completions', migrations: completionsMigrations };

export const MASTER_KEY = 'master-key-0d9f8e7c6b5a4';

/** A dollar for a thousand tokens. */
export const priceOf: PriceOf = () => priceFrom({ input: 0.001, output: 0.001 });

export interface LoggedLine {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** A log that is only looked at. */
export function createListLogger(lines: LoggedLine[] = []): Logger {
  const write = (fields: Readonly<Record<string, unknown>>, message: string) => void lines.push({ fields, message });
  const logger: Logger = {
    debug: write,
    info: write,
    warn: write,
    error: write,
    isLevelEnabled: () => true,
    child: () => logger,
    flush: () => undefined,
  };
  return logger;
}

export function startKeys(
  database: Database<CompletionsSchema>,
  options: Partial<MeteredKeysOptions> = {},
): MeteredKeys {
  const clock = options.clock ?? systemClock;
  return createMeteredKeys({
    settings: { master_key: MASTER_KEY, store_content: false },
    usageRetentionMs: 0,
    otlpEndpoint: '',
    programVersion: '0.0.0',
    database,
    priceOf,
    clock,
    randomness: systemRandomness,
    makeId: createSortableIds(clock, systemRandomness),
    logger: createListLogger(),
    ...options,
  });
}

/** The head of a request that brings a key. */
export function headWith(key: string, changes: Partial<RequestHead> = {}): RequestHead {
  return {
    requestId: 'req_1',
    method: 'POST',
    path: '/v1/chat/completions',
    query: new URLSearchParams(),
    headers: key === '' ? {} : { authorization: `Bearer ${key}` },
    address: '192.0.2.1',
    peerAddress: '192.0.2.1',
    secure: false,
    ...changes,
  };
}

/** How long others may take to see a change of a key: a second, and the time to ask. `until` stretches it on a loaded machine. */
export const WITHIN_A_SECOND_MS = 1300;

/** Whether a key is refused as one that nobody knows. */
export async function isRefused({ access }: Pick<MeteredKeys, 'access'>, key: string): Promise<boolean> {
  try {
    await access.withKey(headWith(key));
    return false;
  } catch (error) {
    if (errorCode(error) === 'INVALID_API_KEY') return true;
    throw error;
  }
}

/** What is admitted without waiting, as it is wherever one instance counts alone. */
export function admittedNow(given: Admission | Promise<Admission>): Admission {
  if (given instanceof Promise) throw new Error('admission waits');
  return given;
}

/** One call of 15 tokens (0.015 USD), from its admission to its end. */
export function callOnce(
  keys: MeteredKeys,
  holder: KeyHolder,
  tokens = 15,
  more: Pick<CallOutcome, 'content'> = {},
): void {
  const request = { estimatedTokens: tokens, estimatedCostNano: tokens * 1_000_000, mayCost: true };
  admittedNow(keys.admissions.admit(holder, request)).settle({
    model: 'lab/small',
    api: 'lab',
    upstreamModel: 'small',
    usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens },
    estimated: false,
    outcome: 'ok',
    status: 200,
    attempts: 1,
    durationMs: 12,
    firstTokenMs: 5,
    requestId: 'req_1',
    ...more,
  });
}
