import { isUtf8 } from 'node:buffer';
import { basename } from 'node:path';
import { AppError } from '../../platform/errors/app-error.ts';
import { asObject } from '../agents/agent-text.ts';
import { MAX_ATTACHMENTS, MAX_INLINE_BYTES, type TurnParams } from '../contract/session.ts';

/** A file as a call gives it. */
export type GivenFile =
  | { readonly kind: 'stored'; readonly attachmentId: string }
  | { readonly kind: 'bytes'; readonly name: string; readonly contentType: string; readonly bytes: Buffer }
  /** The app has named it, and not sent it. */
  | { readonly kind: 'unsent'; readonly name: string; readonly path: string };

export type AttachmentParams = Pick<TurnParams, 'attachments' | 'inlineAttachments'>;

/** Inside of the private folder of a session. */
export const ATTACHMENT_FOLDER = 'attachments';
const BASE64 = /^(?:data:[^,]{0,200};base64,)?([A-Za-z0-9+/_-]*={0,2})$/;
const MAX_NAME_BYTES = 120;

/** Reads the files of a call. Throws ATTACHMENT_REFUSED for what is not base64, or too much in one call. */
export function readGivenFiles({ attachments = [], inlineAttachments = [] }: AttachmentParams): readonly GivenFile[] {
  if (attachments.length === 0 && inlineAttachments.length === 0) return NO_FILES;
  const inline = inlineAttachments.map(({ name, mimeType = '', content }) => fileOf(name, mimeType, content));
  // The known client lists in `attachments` what it also sends in `inlineAttachments`.
  const sent = new Set(inlineAttachments.map(({ name }) => name));
  const given = attachments.flatMap((one): readonly GivenFile[] => {
    const { attachmentId, name = '', contentType = '', data, path = '' } = one;
    if (attachmentId !== undefined) return [{ kind: 'stored', attachmentId }];
    if (data !== undefined) return [fileOf(name, contentType, data)];
    if (name === '' && path === '') throw refused('one of them has neither attachmentId nor data');
    return sent.has(name) ? [] : [{ kind: 'unsent', name: safeName(name || basename(path)), path: oneLine(path) }];
  });
  const files = [...given, ...inline];
  requireFew(files);
  const bytes = files.reduce((sum, file) => sum + (file.kind === 'bytes' ? file.bytes.length : 0), 0);
  if (bytes > MAX_INLINE_BYTES) {
    throw refused(
      `the files inside of one call have ${bytes} bytes, and may have ${MAX_INLINE_BYTES}; upload them with POST /api/bridge/attachments first`,
    );
  }
  return files;
}

const NO_FILES: readonly GivenFile[] = [];

/** Throws ATTACHMENT_REFUSED for more files than a call may have. */
export function requireFew(files: readonly unknown[]): void {
  if (files.length > MAX_ATTACHMENTS) throw refused(`a call has at most ${MAX_ATTACHMENTS} of them`);
}

export function refused(reason: string): AppError {
  return new AppError('ATTACHMENT_REFUSED', { reason });
}

function fileOf(name: string, contentType: string, data: string): GivenFile {
  const base64 = BASE64.exec(data)?.[1];
  if (base64 === undefined) throw refused(`the data of "${safeName(name)}" is not base64`);
  const bytes = Buffer.from(base64, 'base64');
  return { kind: 'bytes', name: safeName(name), contentType, bytes };
}

/** A file name that is safe on every disk and on one line of a prompt: no folders, no control characters, no leading dot. */
export function safeName(name: string): string {
  const last = basename(name.replaceAll('\\', '/'));
  const plain = last
    .normalize('NFC')
    .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}<>:"|?*/]/gu, '_')
    .replace(/^[.\s~-]+/, '')
    .trim();
  if (plain === '') return 'file';
  if (Buffer.byteLength(plain) <= MAX_NAME_BYTES) return plain;
  const dot = plain.lastIndexOf('.');
  const extension = dot > 0 && plain.length - dot <= 12 ? plain.slice(dot) : '';
  let cut = plain.slice(0, MAX_NAME_BYTES - extension.length);
  while (Buffer.byteLength(cut) > MAX_NAME_BYTES - Buffer.byteLength(extension)) cut = cut.slice(0, -1);
  return `${cut.toWellFormed().replaceAll('\ufffd', '')}${extension}`;
}

/** Returns the name, with a number in front if it is taken. */
export function freeName(name: string, taken: Set<string>): string {
  for (let count = 2, free = name; ; count += 1) {
    // Some file systems are not case-sensitive.
    const known = free.toLowerCase();
    if (!taken.has(known)) {
      taken.add(known);
      return free;
    }
    free = `${count}-${name}`;
  }
}

function oneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ').trim();
}

/** The first bytes of the image types that models accept. */
const IMAGES: readonly (readonly [type: string, matches: (head: Buffer) => boolean])[] = [
  ['image/png', (head) => head.subarray(0, 8).toString('latin1') === '\x89PNG\r\n\x1a\n'],
  ['image/jpeg', (head) => head.subarray(0, 3).toString('latin1') === '\xff\xd8\xff'],
  ['image/gif', (head) => /^GIF8[79]a/.test(head.subarray(0, 6).toString('latin1'))],
  ['image/webp', (head) => /^RIFF....WEBP/s.test(head.subarray(0, 12).toString('latin1'))],
];

const TEXT_TYPES = /^(?:text\/|application\/(?:.*[+.-])?(?:json|xml|yaml|toml|sql|javascript|typescript|x-sh)\b)/;

/** Returns the type of an image by its first bytes. Its name is ignored, because models refuse a wrong type. */
export function imageType(head: Buffer): string | undefined {
  return IMAGES.find(([, matches]) => matches(head))?.[0];
}

/** Whether bytes can be shown as text: their type is a text type or unknown, and they are valid UTF-8. */
export function isShownAsText(contentType: string, bytes: Buffer): boolean {
  const isText = TEXT_TYPES.test(contentType) || contentType === 'application/octet-stream';
  return isText && bytes.length > 0 && isUtf8(bytes) && !bytes.includes(0);
}

/** Whether the params of a call have files that were uploaded here, which another bridge does not have. */
export function namesUploads(params: unknown): boolean {
  const { attachments } = asObject(params);
  return Array.isArray(attachments) && attachments.some((one) => asObject(one).attachmentId !== undefined);
}
