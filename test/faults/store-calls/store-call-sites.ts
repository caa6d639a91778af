import { readSources, type SourceFile } from '../../architecture/source-file.ts';

export const STORE_CALLS = ['write', 'readKeyed', 'read', 'transaction'] as const;
export type StoreCall = (typeof STORE_CALLS)[number];

export const SERVICES = ['bridge', 'accounts', 'completions'] as const;
export type Service = (typeof SERVICES)[number];

/** Only passes calls on: the places that call it are meant. */
export const GUARDED_WRITES = 'src/accounts/storage/guarded-writes.ts';

/** All places in the sources of a service that call its store, as `src/accounts/audit.ts:12 (write)`. */
export function storeCallSites(service: Service): readonly string[] {
  return readSources([`src/${service}`])
    .filter(({ path }) => path !== GUARDED_WRITES)
    .flatMap(sitesIn);
}

/** What has a database calls it `database`: the rest of the sources is looked at by its shape alone. */
export function sitesIn(file: SourceFile): readonly string[] {
  const sites = new Set<string>();
  file.visit({
    MemberExpression({ object, property, computed }) {
      if (computed || property.type !== 'Identifier' || !isStoreCall(property.name)) return;
      const isDatabase =
        (object.type === 'Identifier' && object.name === 'database') ||
        (object.type === 'MemberExpression' &&
          object.property.type === 'Identifier' &&
          object.property.name === 'database');
      // Where the name of the function stands is where an engine says that it was called.
      const line = file.text.slice(0, property.start).split('\n').length;
      if (isDatabase) sites.add(`${file.path}:${line} (${property.name})`);
    },
  });
  return [...sites];
}

function isStoreCall(name: string): name is StoreCall {
  return (STORE_CALLS as readonly string[]).includes(name);
}
