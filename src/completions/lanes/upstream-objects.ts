import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { nothingStored } from '../dialects/conversation.ts';
import type { Reference } from '../dialects/dialect.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { UpstreamObjectRow } from '../storage/completions-schema.ts';
import type { ObjectStore } from '../storage/object-store.ts';

/**
 * The objects that model APIs store for callers. They are in the operator's account, which all callers share, so an id passes only
 * if the API returned it to the same caller.
 */
export interface UpstreamObjects {
  /** Records objects of the caller. They count immediately, before they are written to the database. */
  keep(ids: readonly string[], holder: Owned, api: string): void;
  /** Returns what refuses a request on an API: undefined where every object that the request names is the caller's and is there. */
  refusalOf(references: readonly Reference[], holder: Owned): Promise<(api: string) => AppError | undefined>;
  /** Throws TOO_MANY_STORED when the caller has as many of a kind as one may have. */
  checkRoom(kind: StoredKind, holder: Owned): Promise<void>;
  /** Stores whose a file or a batch is, before the caller gets its id. */
  add(objects: readonly StoredObject[], holder: Owned): Promise<void>;
  /** Throws NOTHING_STORED with the name of the field if the object is not the caller's. */
  find(id: string, kind: StoredKind, holder: Owned, field: string): Promise<StoredObject>;
  /** The latest first. */
  list(kind: StoredKind, holder: Owned, page: { after?: string | undefined; limit: number }): Promise<StoredPage>;
  /** Those of one kind that an owner has stored since a moment. */
  since(kind: StoredKind, owner: string, time: number): Promise<readonly StoredObject[]>;
  forget(id: string, holder: Owned): Promise<void>;
}

export type StoredKind = 'file' | 'batch';

/** A file or a batch that a model API keeps until it is deleted. */
export interface StoredObject {
  readonly id: string;
  readonly kind: StoredKind;
  /** The API, or the account of one of its keys (`placeOf`). */
  readonly place: string;
  readonly detail: string;
}

interface StoredPage {
  readonly objects: readonly StoredObject[];
  readonly hasMore: boolean;
}

type Owned = Pick<KeyHolder, 'id' | 'owner'>;

export interface UpstreamObjectsOptions {
  readonly store: Omit<ObjectStore, 'removeBefore' | 'removeOf'>;
  readonly clock: Pick<Clock, 'now'>;
  onError(error: unknown): void;
}

/** The most ids of one response. A response usually has some tens. Later ids are not recorded, and cannot be named later. */
const MAX_IDS = 1000;
const MAX_ID_LENGTH = 256;
/** The most rows that wait to be stored, which is reached only while the database is unavailable. */
const MAX_WAITING = 20_000;
const MAX_REFERENCES = 1000;
/** Files, and batches, that one owner may have at the same time. */
const MAX_STORED = 10_000;
const ROWS_PER_READ = 100;

export function createUpstreamObjects({ store, clock, onError }: UpstreamObjectsOptions): UpstreamObjects {
  const waiting = new Map<string, { readonly owner: string; readonly api: string }>();

  async function apiOf(id: string, owner: string): Promise<string | undefined> {
    const own = waiting.get(id);
    if (own !== undefined) return own.owner === owner ? own.api : undefined;
    return id.length > MAX_ID_LENGTH ? undefined : store.apiOf(id, owner);
  }

  return {
    keep(ids, holder, api) {
      const owner = ownerOf(holder);
      const fresh = [...new Set(ids)].filter((id) => id.length <= MAX_ID_LENGTH && !waiting.has(id)).slice(0, MAX_IDS);
      if (fresh.length === 0 || waiting.size + fresh.length > MAX_WAITING) return;
      for (const id of fresh) waiting.set(id, { owner, api });
      const created_at = clock.now();
      store
        .add(fresh.map((id) => ({ id, api, owner, created_at, kind: '', detail: '' })))
        .catch(onError)
        .finally(() => {
          for (const id of fresh) waiting.delete(id);
        });
    },
    async refusalOf(references, holder) {
      const [tooMany] = references.slice(MAX_REFERENCES);
      if (tooMany !== undefined) return () => nothingStored(tooMany);
      const owner = ownerOf(holder);
      const apis = await Promise.all(references.map(({ id }) => apiOf(id, owner)));
      return (api) => {
        const lost = references.find((_, index) => apis[index] !== api);
        return lost === undefined ? undefined : nothingStored(lost);
      };
    },
    async checkRoom(kind, holder) {
      if ((await store.count(ownerOf(holder), kind)) >= MAX_STORED) {
        throw new AppError('TOO_MANY_STORED', { kind, limit: MAX_STORED });
      }
    },
    async add(objects, holder) {
      const owner = ownerOf(holder);
      const created_at = clock.now();
      await store.add(objects.map(({ place, ...object }) => ({ ...object, api: place, owner, created_at })));
    },
    async find(id, kind, holder, field) {
      const row = id.length > MAX_ID_LENGTH ? undefined : await store.find(id, ownerOf(holder));
      if (row?.kind !== kind) throw nothingStored({ id, path: `/${field}` });
      return storedObject(row);
    },
    async list(kind, holder, { after, limit }) {
      const owner = ownerOf(holder);
      const from = after === undefined ? undefined : await store.find(after, owner);
      if (after !== undefined && from === undefined) throw nothingStored({ id: after, path: '/after' });
      const rows = await store.list({ owner, kind, after: from, limit: limit + 1 });
      return { objects: rows.slice(0, limit).map(storedObject), hasMore: rows.length > limit };
    },
    async since(kind, owner, time) {
      const found: StoredObject[] = [];
      for (let after: UpstreamObjectRow | undefined; ; ) {
        const rows = await store.list({ owner, kind, after, limit: ROWS_PER_READ });
        const isNew = rows.filter(({ created_at }) => created_at >= time);
        found.push(...isNew.map(storedObject));
        after = rows.at(-1);
        if (isNew.length < ROWS_PER_READ) return found;
      }
    },
    forget: (id, holder) => store.remove(id, ownerOf(holder)),
  };
}

function storedObject({ id, kind, api, detail }: UpstreamObjectRow): StoredObject {
  return { id, kind: kind as StoredKind, place: api, detail };
}

/** Whose the objects of a caller are. */
export function ownerOf({ owner, id }: Owned): string {
  return owner === '' ? id : owner;
}

/** An address whose scheme is neither https, http nor data. Base64 cannot match, because it has no colon. */
const STORAGE_ADDRESS = /^\s*(?!https?:)(?!data:)[a-z][a-z\d+.-]{0,30}:\//i;
const FILE_SCHEME = 'fileid://';
/** Members whose text a model reads as words, not as an address. */
const WORDS: ReadonlySet<string> = new Set([
  ...[
    'text',
    'content',
    'input',
    'instructions',
    'system',
    'prompt',
    'suffix',
    'stop',
    'stop_sequences',
    'stopSequences',
  ],
  ...['arguments', 'output', 'refusal', 'thinking', 'signature', 'thoughtSignature', 'reasoning', 'reasoning_content'],
  ...['reasoning_signature', 'encrypted_content', 'summary', 'title', 'name', 'filename', 'file_name', 'displayName'],
  ...['description', 'context', 'code', 'query', 'queries', 'documents', 'user', 'id', 'model'],
  ...['call_id', 'tool_call_id', 'tool_use_id', 'prompt_cache_key', 'safety_identifier'],
]);
/** Members whose value belongs to tools, schemas, earlier answers or the caller, and which no model API reads addresses from. */
const OPAQUE: ReadonlySet<string> = new Set([
  ...[
    'parameters',
    'parametersJsonSchema',
    'input_schema',
    'output_schema',
    'schema',
    'response_format',
    'responseSchema',
  ],
  ...[
    'responseJsonSchema',
    'args',
    'response',
    'annotations',
    'citations',
    'input_examples',
    'metadata',
    'labels',
    'logit_bias',
  ],
]);

/**
 * Returns what refuses a request that names an object in storage, such as `s3://bucket/key`, outside the allowed prefixes. The
 * model API would read it with the operator's credentials, which may read more than the caller. It looks at members of any name,
 * because model APIs have many fields for addresses.
 */
export function createRefuseStorage(allowed: readonly string[]): (request: object) => void {
  const isAllowed = (address: string): boolean =>
    allowed.some((prefix) => address.startsWith(prefix)) && !/(?:\/|%2f)(?:\.|%2e){1,2}(?:\/|%2f|$)|\\/i.test(address);

  /** Returns the path below a value that holds a refused address: empty for the value itself. */
  function pathIn(value: unknown, member: string, isSystem: boolean): string | undefined {
    if (typeof value === 'string') {
      const isAddress = STORAGE_ADDRESS.test(value);
      if (isAddress && !WORDS.has(member)) return isAllowed(value) ? undefined : '';
      // Qwen reads files that are named in the text of a message.
      if (!(isSystem ? value.includes(FILE_SCHEME) : isAddress && value.trimStart().startsWith(FILE_SCHEME)))
        return undefined;
      return WORDS.has(member) && !value.split(',').every((name) => isAllowed(name.trim())) ? '' : undefined;
    }
    if (typeof value !== 'object' || value === null) return undefined;
    if (Array.isArray(value)) {
      for (let index = 0; index < value.length; index += 1) {
        const found = pathIn(value[index], member, isSystem);
        if (found !== undefined) return `/${index}${found}`;
      }
      return undefined;
    }
    return pathInObject(value as Readonly<Record<string, unknown>>, isSystem);
  }

  function pathInObject(object: Readonly<Record<string, unknown>>, wasSystem: boolean): string | undefined {
    const { type, role } = object;
    const isSystem = wasSystem || role === 'system' || role === 'developer';
    for (const name in object) {
      const value = object[name];
      if (typeof value === 'object' && (OPAQUE.has(name) || isOpaque(type, name))) continue;
      // The source of a search result is a label.
      if (type === 'search_result' && name === 'source') continue;
      const found = pathIn(value, name, isSystem || name === 'system' || name === 'instructions');
      if (found !== undefined) return `/${name}${found}`;
    }
    return undefined;
  }

  return (request) => {
    const path = pathIn(request, '', false);
    if (path !== undefined) throw nothingStored({ id: '', path });
  };
}

/** Whether a member is the input of a tool, which may be any JSON. */
function isOpaque(type: unknown, name: string): boolean {
  return name === 'input' && typeof type === 'string' && type.endsWith('tool_use');
}
