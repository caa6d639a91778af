import { AppError } from '../../platform/errors/app-error.ts';

/** One part of a form: a field, or a file. Its value is a view into the body. */
export interface FormPart {
  readonly name: string;
  readonly filename: string | undefined;
  readonly type: string | undefined;
  readonly value: Buffer;
}

export interface Form {
  readonly boundary: string;
  readonly parts: readonly FormPart[];
}

const MAX_PARTS = 128;
const MAX_HEAD_BYTES = 2048;
const BOUNDARY = /^boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))$/i;
/** Strict on purpose: an upstream must find the same names in the form as we do. */
const DISPOSITION =
  /^form-data; ?name="([A-Za-z0-9_.[\]-]{1,64})"(?:; ?filename="([^"\r\n]{0,512})")?(; ?filename\*=[^\s";]{1,512})?$/i;
const HEAD_END = Buffer.from('\r\n\r\n');

export function isForm(contentType: string | undefined): boolean {
  return /^multipart\/form-data\s*;/i.test(contentType ?? '');
}

/** Reads a form. Throws INVALID_REQUEST for what is not one, or is written in an unusual way. */
export function readForm(body: Buffer, contentType: string | undefined): Form {
  const boundary = boundaryOf(contentType ?? '');
  if (boundary === undefined) throw refused('the content type is not multipart/form-data with a boundary');
  const mark = Buffer.from(`\r\n--${boundary}`);
  const first = mark.subarray(2);
  if (!body.subarray(0, first.length).equals(first)) throw refused('the form does not begin with its boundary');
  const parts: FormPart[] = [];
  let at = first.length;
  while (body.toString('latin1', at, at + 2) !== '--') {
    if (body.toString('latin1', at, at + 2) !== '\r\n') throw refused('a boundary of the form has no line end');
    const end = body.indexOf(mark, at);
    if (end === -1) throw refused('the form has no end');
    if (parts.length >= MAX_PARTS) throw refused(`the form has more than ${MAX_PARTS} parts`);
    parts.push(readPart(body.subarray(at + 2, end)));
    at = end + mark.length;
  }
  return { boundary, parts };
}

function boundaryOf(contentType: string): string | undefined {
  const [type = '', ...parameters] = contentType
    .slice(0, MAX_HEAD_BYTES)
    .split(';')
    .map((part) => part.trim());
  const found = parameters.filter((parameter) => /^boundary=/i.test(parameter));
  if (type.toLowerCase() !== 'multipart/form-data' || found.length !== 1) return undefined;
  const [, quoted, plain] = BOUNDARY.exec(found[0] ?? '') ?? [];
  return quoted ?? plain;
}

function readPart(part: Buffer): FormPart {
  const end = part.subarray(0, MAX_HEAD_BYTES).indexOf(HEAD_END);
  if (end === -1) throw refused('a part of the form has no headers, or too long ones');
  let named: RegExpExecArray | undefined;
  let type: string | undefined;
  for (const line of part.toString('utf8', 0, end).split('\r\n')) {
    const colon = line.indexOf(':');
    const header = line.slice(0, Math.max(0, colon)).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (header === 'content-disposition' && named === undefined) named = DISPOSITION.exec(value) ?? undefined;
    else if (header === 'content-type' && /^[\x20-\x7e]{1,200}$/.test(value)) type = value;
    else throw refused('a part of the form has a header that is not understood');
  }
  // The extended form of the name is for names that are not ASCII: the plain one will do.
  const [, name, plain, extended] = named ?? [];
  const filename = plain ?? (extended === undefined ? undefined : 'file');
  if (name === undefined) throw refused('a part of the form has no plain name');
  return { name, filename, type, value: part.subarray(end + HEAD_END.length) };
}

/** The text of a field that may stand in the form once; undefined when it does not. */
export function fieldOf({ parts }: Form, name: string): string | undefined {
  const [found, ...more] = parts.filter((part) => part.name === name);
  if (more.length > 0) throw refused(`the form has the field "${name}" more than once`);
  return found?.value.toString('utf8');
}

/** Writes a form again, with other values for some fields. The values are not copied, and none of them has the boundary in it. */
export function writeForm(
  { boundary, parts }: Form,
  changed: Readonly<Record<string, string>>,
): { readonly body: readonly Buffer[]; readonly contentType: string } {
  const body: Buffer[] = [];
  for (const { name, filename, type, value } of parts) {
    const file = filename === undefined ? '' : `; filename="${filename}"`;
    const kind = type === undefined ? '' : `\r\nContent-Type: ${type}`;
    body.push(Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"${file}${kind}\r\n\r\n`));
    body.push(Object.hasOwn(changed, name) ? Buffer.from(changed[name] ?? '') : value, Buffer.from('\r\n'));
  }
  body.push(Buffer.from(`--${boundary}--\r\n`));
  const isPlain = /^[\w-]+$/.test(boundary);
  return { body, contentType: `multipart/form-data; boundary=${isPlain ? boundary : `"${boundary}"`}` };
}

function refused(reason: string): AppError {
  return new AppError('INVALID_REQUEST', { reason });
}

/** The one file of a form. Throws INVALID_PARAMETER for none and for several. */
export function fileOf({ parts }: Form) {
  const files = parts.filter(({ filename }) => filename !== undefined);
  const [file] = files;
  if (files.length === 1 && file?.name === 'file') return file;
  throw new AppError('INVALID_PARAMETER', { message: "The form needs exactly one file, as 'file'.", param: 'file' });
}
