import { isIP } from 'node:net';
import type { Static } from 'typebox';
import { createAddressMatcher, isHostName, parseListenAddress } from '../network-address/ip-address.ts';
import { type LeafOptions, leaf, leafKinds, line } from './leaf-settings.ts';
import type { CollectionSetting, GroupSetting, Setting } from './setting-declaration.ts';

type Members = Readonly<Record<string, Setting<unknown>>>;

/** Settings under one key. Each of them may be set on its own. */
function group<const M extends Members>(
  description: string,
  members: M,
): Setting<{ readonly [Key in keyof M]: Static<M[Key]> }> {
  const own: GroupSetting = { shape: 'group', description, members };
  return own as Setting<{ readonly [Key in keyof M]: Static<M[Key]> }>;
}

interface CollectionOptions {
  readonly description: string;
  readonly env?: string;
  readonly reload?: boolean;
}

/** Any number of values; set as a whole. */
function list<T>(
  item: Setting<T>,
  options: CollectionOptions & { readonly default?: readonly unknown[]; readonly minimum?: number },
): Setting<readonly T[]> {
  const { minimum = 0 } = options;
  const fallback = options.default ?? (minimum > 0 ? undefined : []);
  const json = { type: 'array', ...(minimum > 0 && { minItems: minimum }) };
  return collection(item, options, { shape: 'list', fallback, minimum, json });
}

/** Values under keys that the user chooses; set as a whole. Empty by default. */
function record<T>(
  value: Setting<T>,
  {
    keyPattern,
    keyExpects,
    ...options
  }: CollectionOptions & { readonly keyPattern: string; readonly keyExpects: string },
): Setting<Readonly<Record<string, T>>> {
  const json = { type: 'object', propertyNames: { pattern: keyPattern } };
  const keys = { keyPattern: new RegExp(keyPattern), keyExpects };
  return collection(value, options, { shape: 'record', fallback: {}, json, ...keys });
}

function collection<T>(
  member: Setting<unknown>,
  { description, env, reload = false }: CollectionOptions,
  own: Pick<CollectionSetting, 'shape' | 'fallback' | 'json'> & Partial<CollectionSetting>,
): Setting<T> {
  const type = `${own.shape === 'list' ? 'list' : 'map'} of ${member.shape === 'group' ? 'groups' : member.type}`;
  const unused = { minimum: 0, keyPattern: /^/, keyExpects: '' };
  return { ...unused, description, env, reload, type, member, ...own } as CollectionSetting as Setting<T>;
}

/** How settings are declared: one call each, from which type, validation, names, schema, documentation and masking follow. */
export const setting = { group, list, record, ...leafKinds, url, origin, hostName, cidr, listenAddress };

interface UrlOptions extends LeafOptions<string> {
  /** Without the colon: `['https']`. */
  readonly schemes: readonly string[];
  /** A user, a password and a query may be part of it; the password is masked when printed. */
  readonly credentials?: boolean;
}

/** A URL. Without credentials it is a place to append paths to: a final slash is dropped, and nothing may follow the path. */
function url(options: UrlOptions): Setting<string> {
  const { schemes, credentials = false } = options;
  return leaf(options, {
    json: { type: 'string', pattern: `^(${schemes.join('|')})://` },
    type: 'URL',
    expects: `a URL that starts with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`,
    ...(credentials && { secrecy: 'url' as const }),
    decode: line((written) => {
      const parsed = /^[a-z][a-z\d+.-]*:\/\/\S+$/i.test(written) ? URL.parse(written) : null;
      if (parsed === null) return { wrong: 'is not a URL' };
      if (!schemes.includes(parsed.protocol.slice(0, -1))) return { wrong: 'has another scheme' };
      if (credentials && /@/.test(parsed.pathname + parsed.search + parsed.hash)) {
        // The parser took the host to end inside the password; what follows would be printed as a path.
        return { wrong: 'has an @ after the host: signs such as / ? # in a password are written as %2F %3F %23' };
      }
      if (credentials) return { value: written };
      if (parsed.username !== '' || parsed.password !== '')
        return { wrong: 'has a user or password in it', fix: 'leave them out' };
      if (/[?#]/.test(written)) return { wrong: 'has a query or fragment', fix: 'end it after the path' };
      return parsed.hostname === '' ? { wrong: 'names no host' } : { value: written.replace(/\/{1,9}$/, '') };
    }),
  });
}

interface OriginOptions extends LeafOptions<string> {
  /** Also accepts `http://localhost:*`. */
  readonly anyPort?: boolean;
  /** A word that is accepted as it is, because it stands for an origin that is not known yet. */
  readonly word?: string;
}

/** A web origin as browsers send it. */
function origin(options: OriginOptions): Setting<string> {
  const { word } = options;
  const example = options.anyPort === true ? 'https://app.example or http://localhost:*' : 'https://app.example';
  const pattern = '[a-z][a-z0-9+.-]*://[^/?#*\\s]+(:\\*)?';
  return leaf(options, {
    json: { type: 'string', pattern: word === undefined ? `^${pattern}$` : `^(?:${word}|${pattern})$` },
    type: 'origin',
    expects: `an origin such as ${example}, without a path`,
    decode: line((written) => {
      if (word !== undefined && written === word) return { value: written };
      if (written === '*' || /:\/\/\*/.test(written))
        return { wrong: 'has a wildcard for a host', fix: 'list each origin by its name' };
      const anyPort = options.anyPort === true && written.endsWith(':*');
      const base = anyPort ? written.slice(0, -2) : written;
      const parsed = /^[a-z][a-z\d+.-]*:\/\/[^\s*]+$/i.test(base) ? URL.parse(base) : null;
      if (parsed === null || parsed.host === '') return { wrong: 'is not an origin' };
      const proper = `${parsed.protocol}//${anyPort ? parsed.hostname : parsed.host}`;
      if (proper === base) return { value: written };
      // Browsers send origins in exactly one spelling, and they are compared as text.
      return { wrong: 'is not spelled as browsers send it', fix: `say ${proper}${anyPort ? ':*' : ''}` };
    }),
  });
}

/** A host name or address, without a port. Lower case in the result; IPv6 with brackets, as in a Host header. */
function hostName(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', pattern: '^(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9_.:-]+)$' },
    type: 'host name',
    expects: 'a host name or address without scheme and port, such as app.example',
    decode: line((text) => {
      const written = text.toLowerCase();
      const bare = written.startsWith('[') && written.endsWith(']') ? written.slice(1, -1) : written;
      if (isIP(bare) === 6) return { value: `[${bare}]` };
      if (isIP(written) === 4 || isHostName(written)) return { value: written };
      const found = URL.parse(written.includes('://') ? written : `http://${written}`)?.hostname ?? '';
      return { wrong: 'is not a host name', ...(isHostName(found) && { fix: `say ${found}` }) };
    }),
  });
}

/** A range of addresses, or one address. */
function cidr(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', pattern: '^[0-9a-fA-F:.]+(/[0-9]{1,3})?$' },
    type: 'CIDR',
    expects: 'a range such as 10.0.0.0/8, or one address',
    decode: line((text) => {
      const written = text.trim();
      try {
        createAddressMatcher([written]);
        return { value: written };
      } catch {
        return { wrong: 'is not a range of addresses' };
      }
    }),
  });
}

/** `127.0.0.1:8787`. */
function listenAddress(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', pattern: '^(\\[[^\\[\\]]+\\]|[^:\\[\\]*]+):[0-9]{1,5}$' },
    type: 'address:port',
    expects: 'an address and a port, such as 127.0.0.1:8787 or [::1]:8787',
    decode(raw) {
      const written = String(raw).trim();
      const parsed = parseListenAddress(written);
      return 'wrong' in parsed ? parsed : { value: written };
    },
  });
}
