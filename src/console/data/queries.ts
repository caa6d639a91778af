import {
  type InvalidateOptions,
  type InvalidateQueryFilters,
  type Query,
  QueryCache,
  QueryClient,
} from '@tanstack/react-query';
import { Problem } from './request.ts';

const RETRIES = 2;

/**
 * What the page has read from the server. What changes while it is read for the first time is read again: that answer may be
 * older than the change, and the library takes it for the new one.
 */
class Queries extends QueryClient {
  readonly #changed: WeakSet<Query>;

  constructor() {
    const changed = new WeakSet<Query>();
    super({
      queryCache: new QueryCache({
        onSettled: (_data, _error, query) => {
          if (changed.delete(query as Query)) void this.invalidateQueries({ queryKey: query.queryKey, exact: true });
        },
      }),
      defaultOptions: {
        queries: {
          // A refusal stays one; a lost connection may come back.
          retry: (count, error) =>
            count < RETRIES && !(error instanceof Problem && error.status > 0 && error.status < 500),
          staleTime: 5000,
          refetchOnWindowFocus: false,
        },
      },
    });
    this.#changed = changed;
  }

  override invalidateQueries(filters: InvalidateQueryFilters = {}, options?: InvalidateOptions): Promise<void> {
    for (const query of this.getQueryCache().findAll(filters)) {
      const { data, fetchStatus } = query.state;
      if (data === undefined && fetchStatus !== 'idle') this.#changed.add(query);
    }
    return super.invalidateQueries(filters, options);
  }
}

export const queries: QueryClient = new Queries();
