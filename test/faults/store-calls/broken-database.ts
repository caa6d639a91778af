import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { GUARDED_WRITES, STORE_CALLS, type StoreCall } from './store-call-sites.ts';

/** One call of a scenario: the first, second or a later one from a place in the sources. */
export interface NthCall {
  readonly site: string;
  /** From 1. */
  readonly nth: number;
}

export interface BrokenCall {
  /** Undefined: none fails. */
  readonly which: NthCall | undefined;
  /** A place whose first call after that one fails too: some are only reached when something has failed. */
  readonly next?: string;
  /** Before anything was done, or after it was done, as when the answer is lost. */
  readonly when: 'before' | 'after';
}

export interface BrokenDatabase {
  /** Where in the sources the store was called. */
  readonly sites: ReadonlySet<string>;
  /** Where the calls were made that failed. */
  readonly brokenSites: readonly string[];
  /** Where each call came from, in the order of the calls. */
  readonly calls: readonly string[];
  /** Does something whose calls neither count nor fail: it looks at what came of the others. */
  aside<Result>(work: () => Promise<Result>): Promise<Result>;
  /** From now on nothing fails. */
  mend(): void;
}

/** Whether a call from a place may change something. A read that was done has changed nothing, and fails before that alone. */
export function isChange(site: string): boolean {
  return site.endsWith('(write)') || site.endsWith('(transaction)');
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
  const calls: string[] = [];
  let seen = 0;
  let lookers = 0;
  let isMended = false;

  function fails(site: string): boolean {
    calls.push(site);
    if (site === which?.site) seen += 1;
    if (brokenSites.length === 0) return site === which?.site && seen === which.nth;
    return brokenSites.length === 1 && next === site;
  }

  function breakCall(target: Calls, name: StoreCall): void {
    const inner = target[name];
    target[name] = async (...given) => {
      const site = isMended || lookers > 0 ? undefined : siteOf(new Error().stack ?? '');
      if (site === undefined) return inner(...given);
      const place = `${site} (${name})`;
      sites.add(place);
      if (!fails(place)) return inner(...given);
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
    calls,
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
