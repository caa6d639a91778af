import { extname } from 'node:path';

const TYPES: Readonly<Record<string, string>> = {
  '.csv': 'text/csv; charset=utf-8',
  '.gif': 'image/gif',
  '.htm': 'text/html; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.jpeg': 'image/jpeg',
  '.jpg': 'image/jpeg',
  '.json': 'application/json',
  '.md': 'text/markdown; charset=utf-8',
  '.mp3': 'audio/mpeg',
  '.mp4': 'video/mp4',
  '.pdf': 'application/pdf',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wav': 'audio/wav',
  '.webp': 'image/webp',
  '.xml': 'application/xml',
  '.zip': 'application/zip',
};
const ANY = 'application/octet-stream';
const SHAPE = /^[a-z]{1,20}\/[a-z0-9.+-]{1,80}$/;

/** By the name of a file, or as its maker says, where that is a type at all. */
export function contentTypeOf(name: string, given = ''): string {
  const said = given.toLowerCase().split(';')[0]?.trim() ?? '';
  return SHAPE.test(said) ? said : (TYPES[extname(name).toLowerCase()] ?? ANY);
}
