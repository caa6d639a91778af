import { type Clock, deadline, withinTime } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { readAtMost } from '../../platform/http/bounded-fetch.ts';
import type { AuthoriseUpstream } from '../dialects/authorise-upstream.ts';
import { upstreamUrl } from '../dialects/dialect.ts';
import type { UsableApi } from './model-api.ts';

/** Asks an API for the names of its models. */
export type ListUpstreamModels = (api: UsableApi, signal: AbortSignal) => Promise<readonly string[]>;

const MAX_BYTES = 4 * 1024 * 1024;
const MAX_MODELS = 2000;
const NAME = /^[^\s\p{Cc}]{1,200}$/u;
/** The dialects whose APIs answer `GET /models` with a list of ids. */
const LISTING_DIALECTS: ReadonlySet<string> = new Set(['openai', 'anthropic']);

export function canListModels({ dialect }: UsableApi): boolean {
  return LISTING_DIALECTS.has(dialect);
}

export function createListUpstreamModels(authorise: AuthoriseUpstream): ListUpstreamModels {
  return async (api, signal) => {
    const { request } = await import('undici');
    const { dialect, credentials, baseUrl } = api;
    const url = upstreamUrl(baseUrl, '/models');
    const own = dialect === 'anthropic' ? { 'anthropic-version': '2023-06-01' } : {};
    const given = { accept: 'application/json', ...own, ...api.headers };
    const headers = await authorise({ dialect, credentials, url, headers: given, body: '' });
    const { statusCode, body } = await request(url, { headers: { ...headers }, signal });
    const bytes = await readAtMost(body, MAX_BYTES);
    if (statusCode !== 200 || bytes === undefined) {
      throw new AppError('UPSTREAM_ERROR', { reason: `its list of models came with status ${statusCode}` });
    }
    return readNames(JSON.parse(String(bytes)));
  };
}

/** `{"data":[{"id":...}]}`, `{"models":[...]}` or the bare list; ids or names, as objects or as text. */
function readNames(answer: unknown): readonly string[] {
  const listed = Array.isArray(answer) ? answer : (field(answer, 'data') ?? field(answer, 'models'));
  if (!Array.isArray(listed)) return [];
  const names = listed.map((entry) =>
    typeof entry === 'string' ? entry : (field(entry, 'id') ?? field(entry, 'name')),
  );
  const usable = names.filter((name): name is string => typeof name === 'string' && NAME.test(name));
  return [...new Set(usable)].slice(0, MAX_MODELS);
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

/** The models that APIs say they have. */
interface LiveModels {
  /** The names, at most a minute old; older ones while the API does not answer. Never waits for long, never rejects. */
  of(api: UsableApi): Promise<readonly string[]>;
  stop(): void;
}

interface LiveModelsOptions {
  readonly list: ListUpstreamModels;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
}

interface Listing {
  /** What was asked; an API whose address or key changed is another one. */
  readonly api: UsableApi;
  names: readonly string[];
  askedAt: number;
  asking: Promise<void> | undefined;
}

const FRESH_MS = 60_000;
/** How long a caller waits for a first answer, and how long an API may take to give it for the next caller. */
const WAIT_MS = 1500;
const ASK_MS = 10_000;

export function createLiveModels({ list, clock }: LiveModelsOptions): LiveModels {
  const listings = new Map<string, Listing>();
  const stopping = new AbortController();

  async function ask(listing: Listing): Promise<void> {
    const { signal, release } = deadline(clock, ASK_MS, [stopping.signal]);
    listing.askedAt = clock.monotonic();
    try {
      listing.names = await list(listing.api, signal);
    } catch {
      // It is down, or keeps its list to itself: what it said last still stands.
    } finally {
      release();
      listing.asking = undefined;
    }
  }

  return {
    async of(api) {
      let listing = listings.get(api.id);
      if (listing === undefined || listing.api !== api) {
        listing = { api, names: [], askedAt: Number.NEGATIVE_INFINITY, asking: undefined };
        listings.set(api.id, listing);
      }
      if (clock.monotonic() - listing.askedAt >= FRESH_MS) listing.asking ??= ask(listing);
      if (listing.asking !== undefined) await withinTime(clock, WAIT_MS, listing.asking, () => undefined);
      return listing.names;
    },
    stop: () => stopping.abort(),
  };
}
