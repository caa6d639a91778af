import { readSources, type SourceFile } from '../../architecture/source-file.ts';

export const STORE_CALLS = ['write', 'readKeyed', 'read', 'transaction'] as const;
export type StoreCall = (typeof STORE_CALLS)[number];

export const SERVICES = ['bridge', 'accounts', 'completions'] as const;
export type Service = (typeof SERVICES)[number];

/** Only passes calls on: the places that call it are meant. */
export const GUARDED_WRITES = 'src/accounts/storage/guarded-writes.ts';

interface SharedCall {
  readonly path: string;
  /** Text of the call, which no other call in the file has. */
  readonly text: string;
  readonly reason: string;
}

const RELAY = 'finds the other instance that has a session or a runner: one alone relays nothing';
const TAKEN = 'ends a turn whose session another instance has taken: one alone loses none';
const LEASE = 'takes and gives back parts of a budget that several instances spend from';
const bridgeStore = (name: string) => `src/bridge/storage/${name}.ts`;

/**
 * Calls that are made only where several instances share a PostgreSQL. The scenarios run on SQLite, where nothing makes them, so
 * they are left out of the count. `npm run faults -- cluster` and `limits` kill instances around them.
 */
const SHARED_CALLS: readonly SharedCall[] = [
  { path: bridgeStore('session-store'), text: 'holderOf({ key })', reason: TAKEN },
  { path: bridgeStore('session-store'), text: 'byKey({ key })', reason: RELAY },
  { path: bridgeStore('turn-store'), text: "turn.where('ended_at', 'is not', null)", reason: TAKEN },
  { path: bridgeStore('turn-store'), text: 'open.compile()', reason: TAKEN },
  { path: bridgeStore('turn-store'), text: 'itsSession.compile()', reason: TAKEN },
  { path: bridgeStore('turn-store'), text: 'expectChanges(release, 1)', reason: TAKEN },
  { path: bridgeStore('update-store'), text: 'lastSeq({ sessionKey })', reason: RELAY },
  { path: bridgeStore('instance-and-route-stores'), text: "listed.where('id', '=', id)", reason: RELAY },
  { path: bridgeStore('instance-and-route-stores'), text: 'living.compile()', reason: RELAY },
  { path: 'src/completions/storage/key-store.ts', text: 'takeLease(ask)', reason: LEASE },
  { path: 'src/completions/storage/key-store.ts', text: "eb('leased_nano_usd', '-', amount)", reason: LEASE },
];

/** A place in the sources that calls the store, as `src/accounts/audit.ts:12 (write)`. */
interface Site {
  readonly site: string;
  readonly text: string;
}

/** All places in the sources of a service that call its store, except those that only several instances reach. */
export function storeCallSites(service: Service): readonly string[] {
  const shared = new Set(sharedCallSites(service).map(({ site }) => site));
  return allSites(service).filter((site) => !shared.has(site));
}

/** The places that only several instances on one database reach. Throws for a row of the table that names no call, or two. */
export function sharedCallSites(service: Service): readonly { readonly site: string; readonly reason: string }[] {
  const files = sourcesOf(service);
  return SHARED_CALLS.filter(({ path }) => path.startsWith(`src/${service}/`)).map(({ path, text, reason }) => {
    const found = files.filter((file) => file.path === path).flatMap(callsIn);
    const [one, ...more] = found.filter((call) => call.text.includes(text));
    if (one === undefined || more.length > 0) throw new Error(`${path}: ${text} is not one call of the store`);
    return { site: one.site, reason };
  });
}

function allSites(service: Service): readonly string[] {
  return sourcesOf(service).flatMap(sitesIn);
}

function sourcesOf(service: Service): readonly SourceFile[] {
  return readSources([`src/${service}`]).filter(({ path }) => path !== GUARDED_WRITES);
}

export function sitesIn(file: SourceFile): readonly string[] {
  return [...new Set(callsIn(file).map(({ site }) => site))];
}

/** What has a database calls it `database`: the rest of the sources is looked at by its shape alone. */
function callsIn(file: SourceFile): readonly Site[] {
  const found: Site[] = [];
  file.visit({
    CallExpression({ callee, start, end }) {
      if (callee.type !== 'MemberExpression' || callee.computed) return;
      const { object, property } = callee;
      if (property.type !== 'Identifier' || !isStoreCall(property.name)) return;
      const isDatabase =
        (object.type === 'Identifier' && object.name === 'database') ||
        (object.type === 'MemberExpression' &&
          object.property.type === 'Identifier' &&
          object.property.name === 'database');
      // Where the name of the function stands is where an engine says that it was called.
      const line = file.text.slice(0, property.start).split('\n').length;
      if (isDatabase) {
        found.push({ site: `${file.path}:${line} (${property.name})`, text: file.text.slice(start, end) });
      }
    },
  });
  return found;
}

function isStoreCall(name: string): name is StoreCall {
  return (STORE_CALLS as readonly string[]).includes(name);
}
