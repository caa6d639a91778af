import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { GUARDED_WRITES, STORE_CALLS, type StoreCall } from './store-call-sites.ts';

export interface BrokenCall {
  /** Which call fails: counted from 1, or the first one from a place in the sources; undefined: none. */
  readonly which: number | string | undefined;
  /** A place whose first call after that one fails too: some are only reached when something has failed. */
  readonly next?: string;
  /**
   * Before anything was done, or after it was done, as when the answer is lost. A read that was done has changed
   * nothing: after they were done, only writes and transactions are counted and fail.
   */
  readonly when: 'before' | 'after';
}

export interface BrokenDatabase {
  /** Where in the sources the store was called. */
  readonly sites: ReadonlySet<string>;
  /** Where the calls were made that failed. */
  readonly brokenSites: readonly string[];
  /** How many calls there were, and how many of them may have changed something. */
  counted(): { readonly calls: number; readonly changes: number };
  /** Does something whose calls neither count nor fail: it looks at what came of the others. */
  aside<Result>(work: () => Promise<Result>): Promise<Result>;
  /** From now on nothing fails. */
  mend(): void;
}

/** The database of any service. */
// biome-ignore lint/suspicious/noExplicitAny: of whatever schema; nothing of it is looked at.
export type BreakableDatabase = Pick<Database<any>, StoreCall>;

type Calls = Record<StoreCall, (...given: unknown[]) => Promise<unknown>>;

/** Lets one call of the store fail as a disk or a connection would, on databases that are in use. */
export function breakDatabases(
  databases: readonly BreakableDatabase[],
  { which, next, when }: BrokenCall,
): BrokenDatabase {
  const sites = new Set<string>();
  const brokenSites: string[] = [];
  let calls = 0;
  let changes = 0;
  let lookers = 0;
  let isMended = false;

  function fails(site: string, name: StoreCall): boolean {
    const isChange = name === 'write' || name === 'transaction';
    calls += 1;
    if (isChange) changes += 1;
    if (when === 'after' && !isChange) return false;
    const number = when === 'after' ? changes : calls;
    if (brokenSites.length === 0) return which === number || which === site;
    return brokenSites.length === 1 && next === site;
  }

  function breakCall(target: Calls, name: StoreCall): void {
    const inner = target[name];
    target[name] = async (...given) => {
      const site = isMended || lookers > 0 ? undefined : siteOf(new Error().stack ?? '');
      if (site === undefined) return inner(...given);
      const place = `${site} (${name})`;
      sites.add(place);
      if (!fails(place, name)) return inner(...given);
      brokenSites.push(place);
      if (when === 'after') await inner(...given);
      throw new AppError('STORAGE_UNAVAILABLE');
    };
  }

  for (const database of databases) {
    for (const name of STORE_CALLS) breakCall(database as unknown as Calls, name);
  }
  return {
    sites,
    brokenSites,
    counted: () => ({ calls, changes }),
    async aside(work) {
      lookers += 1;
      try {
        return await work();
      } finally {
        lookers -= 1;
      }
    },
    mend() {
      isMended = true;
    },
  };
}

/** Code that only passes calls on: the place that has called is behind it. */
const BETWEEN = ['/src/platform/', `/${GUARDED_WRITES}`, '/test/kit/open-service-database.ts'];

/** The place that has called, below the database layer; undefined for a test that looks into the store. */
function siteOf(stack: string): string | undefined {
  const [, , ...callers] = stack.split('\n');
  const caller =
    callers.find((frame) => frame.includes('file://') && !BETWEEN.some((path) => frame.includes(path))) ?? '';
  const from = caller.indexOf('/src/');
  return from < 0 ? undefined : caller.slice(from + 1).replace(/:\d+\)?$/, '');
}
