import { annotate, type LeafAnnotation, type Secrecy, type Setting } from './setting-annotation.ts';

/** What can be said about any single value. An item of a list needs no description of its own. */
export interface LeafOptions<Raw> {
  readonly description?: string;
  /** As a file would have it. Without one the setting has to be given. An empty text is allowed only where it is the default. */
  readonly default?: Raw;
  readonly env?: string;
  readonly flag?: string;
  /** `maybe`: masked when printed, but not called a secret. */
  readonly secret?: boolean | 'maybe';
  /** May change while the program runs. */
  readonly reload?: boolean;
  readonly emptyClears?: boolean;
}

export interface LeafKind extends Pick<LeafAnnotation, 'type' | 'expects' | 'read'> {
  /** What a file may hold, as a JSON schema. */
  readonly json: Readonly<Record<string, unknown>>;
  readonly secrecy?: Secrecy;
  readonly write?: LeafAnnotation['write'];
}

export function leaf<T>(options: LeafOptions<unknown>, kind: LeafKind): Setting<T> {
  const json = options.default === undefined ? kind.json : { ...kind.json, default: options.default };
  return annotate<T>(json, {
    shape: 'leaf',
    description: options.description ?? '',
    env: options.env,
    flag: options.flag,
    reload: options.reload ?? false,
    fallback: options.default,
    type: kind.type,
    secrecy: secrecyOf(options.secret, kind.secrecy),
    emptyClears: options.emptyClears ?? false,
    expects: kind.expects,
    read: kind.read,
    write: kind.write ?? ((value) => value),
  });
}

function secrecyOf(secret: boolean | 'maybe' | undefined, otherwise: Secrecy = 'open'): Secrecy {
  if (secret === true) return 'secret';
  return secret === 'maybe' ? 'private' : otherwise;
}
