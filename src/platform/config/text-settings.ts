import { resolve } from 'node:path';
import { type LeafOptions, leaf } from './leaf.ts';
import type { Folders, Reading, Setting } from './setting-annotation.ts';

const LONGEST_TEXT = 4096;
const CONTROL_CHARACTER = /\p{Cc}/u;

interface TextOptions extends LeafOptions<string> {
  /** What it has to look like; said in words by `expects`. Goes into the JSON schema, too. */
  readonly pattern?: string;
  readonly expects?: string;
}

/** One line of text. */
export function text(options: TextOptions): Setting<string> {
  const pattern = options.pattern === undefined ? undefined : new RegExp(options.pattern);
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT, ...(options.pattern && { pattern: options.pattern }) },
    type: 'text',
    expects: options.expects ?? 'one line of text',
    read(raw) {
      const fault = faultOfText(raw);
      if (fault !== undefined) return fault;
      return pattern?.test(String(raw)) === false ? { wrong: 'does not have the right form' } : { value: raw };
    },
  });
}

/** A credential that travels in a header: visible ASCII characters only. Always a secret. */
export function token(options: LeafOptions<string>): Setting<string> {
  return leaf(
    { secret: true, ...options },
    {
      json: { type: 'string', maxLength: LONGEST_TEXT, pattern: '^[!-~]+$' },
      type: 'text',
      expects: 'letters, digits and signs of ASCII, without spaces',
      read(raw) {
        if (typeof raw !== 'string') return faultOfText(raw) ?? { value: raw };
        if (/\s/.test(raw)) return { wrong: 'has a space or a line end in it' };
        const fault = faultOfText(raw);
        if (fault !== undefined) return fault;
        return /^[!-~]+$/.test(raw) ? { value: raw } : { wrong: 'has a character outside ASCII in it' };
      },
    },
  );
}

/** Random bytes in base64, such as an encryption key. Always a secret. */
export function keyBytes(options: LeafOptions<string> & { readonly bytes: number }): Setting<string> {
  const { bytes } = options;
  return leaf(
    { secret: true, ...options },
    {
      json: { type: 'string', pattern: '^[A-Za-z0-9+/_-]+={0,2}$' },
      type: `${bytes} bytes in base64`,
      expects: `${bytes} bytes in base64; "openssl rand -base64 ${bytes}" makes one`,
      read(raw) {
        if (typeof raw !== 'string' || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(raw)) return { wrong: 'is not base64' };
        const { length } = Buffer.from(raw, 'base64');
        return length === bytes ? { value: raw } : { wrong: `holds ${length} bytes` };
      },
    },
  );
}

/** A file or folder. Absolute in the result; relative ones start at the file's folder, or at the working directory. */
export function path(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT },
    type: 'path',
    expects: 'a path such as ./data, ~/data or /srv/data',
    read: (raw, _textual, folders) => readPath(raw, folders),
  });
}

/** A program: a bare name, which is looked up in PATH, or a path. */
export function command(options: LeafOptions<string>): Setting<string> {
  return leaf(options, {
    json: { type: 'string', maxLength: LONGEST_TEXT },
    type: 'program',
    expects: 'the name of a program, or its path',
    read: (raw, _textual, folders) =>
      typeof raw === 'string' && !/[\\/]/.test(raw) ? (faultOfText(raw) ?? { value: raw }) : readPath(raw, folders),
  });
}

function readPath(raw: string | number | boolean, { directory, homeDirectory }: Folders): Reading<string> {
  const fault = faultOfText(raw);
  if (fault !== undefined) return fault;
  const written = String(raw);
  if (written === '~') return { value: homeDirectory };
  if (/^~[\\/]/.test(written)) return { value: resolve(homeDirectory, written.slice(2)) };
  if (written.startsWith('~')) return { wrong: 'starts with another user’s home', mend: 'write that path in full' };
  return { value: resolve(directory, written) };
}

/** What is wrong with anything that should be one line of text. */
export function faultOfText(
  raw: string | number | boolean,
): { readonly wrong: string; readonly mend?: string } | undefined {
  if (typeof raw !== 'string') return { wrong: `is a ${kindOf(raw)}`, mend: 'put it into quotes to make it text' };
  if (raw.length > LONGEST_TEXT) return { wrong: `is longer than ${LONGEST_TEXT} characters` };
  return CONTROL_CHARACTER.test(raw) ? { wrong: 'has a control character or a line end in it' } : undefined;
}

function kindOf(raw: number | boolean): string {
  return typeof raw === 'number' ? 'number' : 'truth value';
}
