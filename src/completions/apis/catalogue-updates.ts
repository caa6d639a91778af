import { open } from 'node:fs/promises';
import { type Clock, repeat } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { boundedFetch, readAtMost } from '../../platform/http/bounded-fetch.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { CatalogueRow } from '../storage/completions-schema.ts';
import type { CatalogueStore } from '../storage/object-store.ts';
import { type Catalogue, readCatalogue } from './catalogue.ts';

/** What an update has brought. */
interface CatalogueVersion {
  /** `cat_...` */
  readonly version: string;
  readonly source: string;
  readonly date: string;
  readonly models: number;
  /** False: the same was there before. */
  readonly changed: boolean;
}

/** Reads updates of the catalogue, keeps the last good ones, and puts the newest into force. */
export interface CatalogueUpdates {
  /** Puts the newest stored update into force. Never rejects: without one, the built-in table counts. */
  load(): Promise<void>;
  /**
   * Reads an update from a file or an address; without either, from the configured address, else from models.dev. Throws
   * INVALID_CATALOG and CATALOG_UNREACHABLE; what was in force stays.
   */
  update(source?: string): Promise<CatalogueVersion>;
  stop(): Promise<void>;
}

interface CatalogueUpdatesOptions {
  readonly catalogue: Catalogue;
  readonly store: CatalogueStore;
  /** Where it is read from every day. Empty: only when it is asked for. */
  readonly url: string;
  readonly clock: Clock;
  readonly makeId: MakeId;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
}

const DEFAULT_URL = 'https://models.dev/api.json';
const MAX_BYTES = 32 * 1024 * 1024;
const TIMEOUT_MS = 30_000;
const FIRST_AFTER_MS = 5000;
const DAY_MS = 86_400_000;
/** The newest, and two to go back to when the newest cannot be read any more. */
const KEPT_VERSIONS = 3;

export function createCatalogueUpdates(options: CatalogueUpdatesOptions): CatalogueUpdates {
  const { catalogue, store, url, clock, makeId, logger } = options;

  function put(row: CatalogueRow): number {
    const update = readCatalogue(row.body, dayOf(row.checked_at));
    catalogue.use(update);
    return [...update.models.values()].reduce((all, models) => all + models.length, 0);
  }

  async function update(given?: string, signal?: AbortSignal): Promise<CatalogueVersion> {
    const source = given ?? (url === '' ? DEFAULT_URL : url);
    const body = /^https?:\/\//i.test(source) ? await download(source, signal) : await readSource(source);
    const now = clock.now();
    const [newest] = await store.newest(1);
    const changed = newest?.body !== body;
    const row = changed || newest === undefined ? { id: makeId('cat_'), body } : newest;
    const checked = { ...row, source: nameOf(source), checked_at: now };
    // Read before it is stored: what is not valid is not kept.
    const models = put(checked);
    await store.keep(checked, KEPT_VERSIONS);
    return { version: row.id, source: checked.source, date: dayOf(now), models, changed };
  }

  const repeated =
    url === ''
      ? undefined
      : repeat({
          clock,
          firstAfterMs: FIRST_AFTER_MS,
          pauseMs: DAY_MS,
          async work(signal) {
            const { changed, version, models } = await update(undefined, signal);
            if (changed) logger.info({ version, models }, 'the catalogue of models was updated');
          },
          onError: (error) =>
            logger.warn({ err: error }, 'the catalogue of models was not updated; the last one counts'),
        });

  return {
    async load() {
      try {
        for (const row of await store.newest(KEPT_VERSIONS)) {
          try {
            put(row);
            return;
          } catch (error) {
            logger.warn({ err: error, version: row.id }, 'a stored catalogue of models cannot be read');
          }
        }
      } catch (error) {
        logger.warn({ err: error }, 'the stored catalogue of models was not read; the built-in table counts');
      }
    },
    update: (source) => update(source),
    stop: async () => repeated?.stop(),
  };
}

function dayOf(at: number): string {
  return new Date(at).toISOString().slice(0, 10);
}

/** An address may have a password or a token in it. */
function nameOf(source: string): string {
  const url = /^https?:/i.test(source) ? URL.parse(source) : null;
  return url === null ? source : `${url.origin}${url.pathname}`;
}

async function download(url: string, signal?: AbortSignal): Promise<string> {
  try {
    const init = { headers: { accept: 'application/json' }, ...(signal !== undefined && { signal }) };
    const response = await boundedFetch(url, init, { maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS });
    if (response.status !== 200) throw new Error(`it answered with status ${response.status}`);
    return await response.text();
  } catch (error) {
    throw unreachable(error);
  }
}

async function readSource(path: string): Promise<string> {
  try {
    const file = await open(path);
    try {
      const bytes = await readAtMost(file.createReadStream({ autoClose: false }), MAX_BYTES);
      if (bytes === undefined) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
      return bytes.toString('utf8');
    } finally {
      await file.close();
    }
  } catch (error) {
    throw unreachable(error);
  }
}

function unreachable(error: unknown): AppError {
  const { message, cause } = error instanceof Error ? error : { message: String(error), cause: undefined };
  const reason = cause instanceof Error && cause.message !== '' ? `${message}: ${cause.message}` : message;
  return new AppError('CATALOG_UNREACHABLE', { reason });
}
