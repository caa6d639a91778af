import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { type Clock, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { CallDetails } from '../contract/calls.ts';
import type { CompletionsSettings } from '../settings.ts';
import type { UsageRecordRow } from '../storage/completions-schema.ts';
import type { ExportStore } from '../storage/export-store.ts';
import { detailsOf, firstIdAt, LAST_ID, RECORD_PREFIX } from './call-log.ts';

type ExportSettings = CompletionsSettings['exports'][number];

interface CallExportsOptions {
  readonly settings: readonly ExportSettings[];
  readonly store: ExportStore;
  readonly clock: Clock;
  /** How long other instances may take to store a call. 0 where there are none. */
  readonly lagMs: number;
  readonly logger: Logger;
}

const MAX_CALLS = 500;
/** Contents are up to 1 MiB on each side. */
const MAX_CALLS_WITH_CONTENT = 10;
const TIMEOUT_MS = 30_000;
/** An instance that stops in the middle of its work loses the export to another one after this. */
const CLAIM_MS = 2 * TIMEOUT_MS;
const MAX_ANSWER_BYTES = 64 * 1024;
/** A batch on its way is given this long when the program stops. */
const STOP_MS = 2000;

/**
 * Sends the records of calls to webhooks and files, in batches and in their order. Each export has its place in the table of records,
 * which moves on when a batch has arrived: a batch may come twice, and none is left out.
 */
export function startCallExports(options: CallExportsOptions): Repeated {
  const { settings, store, clock, lagMs, logger } = options;
  const startedAt = clock.now();
  const ended = new AbortController();
  const running = settings.map((each) =>
    repeat({
      clock,
      pauseMs: each.interval,
      work: (signal) => run(each, signal),
      onError: (error) =>
        logger.warn({ err: error, export: each.name }, 'calls were not exported; they are tried again'),
    }),
  );

  async function run(each: ExportSettings, signal: AbortSignal): Promise<void> {
    const now = clock.now();
    let until = now + CLAIM_MS;
    let lastId = await store.claim(each.name, { now, until, firstId: firstIdAt(RECORD_PREFIX, startedAt) });
    if (lastId === undefined) return;
    const limit = each.content ? MAX_CALLS_WITH_CONTENT : MAX_CALLS;
    try {
      for (let isMore = true; isMore && !signal.aborted; ) {
        const beforeId = lagMs === 0 ? LAST_ID : firstIdAt(RECORD_PREFIX, clock.now() - lagMs);
        const rows = await store.after(lastId, beforeId, limit);
        const last = rows.at(-1);
        if (last === undefined) break;
        await send(each, await describe(each, rows), ended.signal);
        lastId = last.id;
        isMore = rows.length === limit;
        const next = clock.now() + CLAIM_MS;
        if (!(await store.advance(each.name, lastId, { until, next }))) return;
        until = next;
      }
    } finally {
      await store.advance(each.name, lastId, { until, next: 0 });
    }
  }

  async function describe({ content }: ExportSettings, rows: readonly UsageRecordRow[]): Promise<CallDetails[]> {
    const stored = content ? await store.contents(rows.map(({ id }) => id)) : [];
    const byId = new Map(stored.map((row) => [row.record_id, row]));
    return rows.map((row) => detailsOf(row, byId.get(row.id)));
  }

  return {
    async stop() {
      const forget = clock.after(STOP_MS, () => ended.abort());
      await Promise.all(running.map((each) => each.stop()));
      forget();
    },
  };
}

function send(settings: ExportSettings, calls: readonly CallDetails[], signal: AbortSignal): Promise<void> {
  return settings.kind === 'file' ? append(settings, calls) : post(settings, calls, signal);
}

async function post({ name, url, token }: ExportSettings, calls: readonly CallDetails[], signal: AbortSignal) {
  const id = `${name}:${calls[0]?.id}:${calls.at(-1)?.id}`;
  const headers = {
    'content-type': 'application/json',
    // The same for a batch that comes again.
    'idempotency-key': id,
    ...(token !== '' && { authorization: `Bearer ${token}` }),
  };
  const body = JSON.stringify({ type: 'usage.calls', id, export: name, calls });
  const init = { method: 'POST', headers, body, signal, redirect: 'manual' } as const;
  const { status } = await boundedFetch(url, init, { maxBytes: MAX_ANSWER_BYTES, timeoutMs: TIMEOUT_MS });
  if (status < 200 || status > 299) throw new Error(`it answered with status ${status}`);
}

const APPEND = constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY | constants.O_NOFOLLOW;

/** One line for each call. The file is opened for each batch, so that others may move it away. */
async function append({ path }: ExportSettings, calls: readonly CallDetails[]): Promise<void> {
  await using file = await open(path, APPEND, 0o600);
  await file.appendFile(calls.map((call) => `${JSON.stringify(call)}\n`).join(''));
  await file.datasync();
}
