import { isSecretParameter } from '../log/secret-names.ts';
import { annotationOf, type LeafAnnotation, type Setting } from './setting-annotation.ts';

const MASK = '********';

/** Settings as a file would have them, with every secret replaced: for print, logs and support requests. */
export function maskSettings<T>(schema: Setting<T>, settings: T): unknown {
  return mask(schema, settings);
}

function mask(schema: Setting<unknown>, value: unknown): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') return maskLeaf(annotation, value);
  if (annotation.shape === 'list') return (value as readonly unknown[]).map((item) => mask(annotation.item, item));
  const entries = Object.entries(value as Readonly<Record<string, unknown>>);
  const memberOf = (key: string): Setting<unknown> =>
    annotation.shape === 'record' ? annotation.value : (annotation.members[key] as Setting<unknown>);
  return Object.fromEntries(entries.map(([key, member]) => [key, mask(memberOf(key), member)]));
}

function maskLeaf({ secrecy, write }: LeafAnnotation, value: unknown): unknown {
  const written = write(value);
  if (secrecy === 'open' || written === '') return written;
  return secrecy === 'url' ? maskUrl(String(written)) : MASK;
}

function maskUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null) return MASK;
  if (url.password !== '') url.password = MASK;
  for (const name of new Set(url.searchParams.keys())) {
    if (isSecretParameter(name)) url.searchParams.set(name, MASK);
  }
  return url.href;
}
