import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';

export interface BrokenCall {
  /** Which call fails: counted from 1, or the first one from a place in the sources; undefined: none. */
  readonly which: number | string | undefined;
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
  /** From now on nothing fails. */
  mend(): void;
}

type Calls = Pick<Database<BridgeSchema>, 'write' | 'readKeyed' | 'read' | 'transaction'>;
const NAMES = ['write', 'readKeyed', 'read', 'transaction'] as const satisfies readonly (keyof Calls)[];

/** Lets one call of the store fail as a disk or a connection would, on a database that is in use. */
export function breakDatabase(database: Database<BridgeSchema>, { which, next, when }: BrokenCall): BrokenDatabase {
  const sites = new Set<string>();
  const target = database as unknown as Record<string, (...given: unknown[]) => Promise<unknown>>;
  let calls = 0;
  const brokenSites: string[] = [];
  let isMended = false;
  for (const name of NAMES) {
    const inner = target[name];
    if (inner === undefined) continue;
    target[name] = async (...given) => {
      if (isMended) return inner(...given);
      const site = `${siteOf(new Error().stack ?? '')} (${name})`;
      sites.add(site);
      calls += 1;
      const isNext = brokenSites.length === 0 ? which === calls || which === site : next === site;
      if (!isNext || brokenSites.length === (next === undefined ? 1 : 2)) return inner(...given);
      brokenSites.push(site);
      if (when === 'after') await inner(...given);
      throw new AppError('STORAGE_UNAVAILABLE');
    };
  }
  return {
    sites,
    brokenSites,
    mend() {
      isMended = true;
    },
  };
}

/** The first place of our own that is not the database layer itself. */
function siteOf(stack: string): string {
  const line = stack.split('\n').find((frame) => frame.includes('/src/') && !frame.includes('/src/platform/'));
  const from = line?.indexOf('/src/') ?? -1;
  return line === undefined ? 'elsewhere' : line.slice(from + 1).replace(/:\d+\)?$/, '');
}
