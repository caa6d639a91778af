import { AppError, errorCode } from '../../../platform/errors/app-error.ts';
import type { PromptContent } from '../prompt-content.ts';
import { textOfPart } from '../prompt-content.ts';
import type { ConversationMessage, UserPart } from './complete-chat.ts';
import { type Confine, withFile } from './tools/confinement.ts';

/** Marks the address of an image whose data is in a file of the session: `trestle-file:image/png:/path`. */
const FILE_MARK = 'trestle-file:';
/** Of the images that are sent with one request; older ones are left out. */
const MAX_SENT_BYTES = 20 * 1024 * 1024;

/** A prompt as the conversation keeps it: with the paths of its images instead of their data. */
export function promptMessage({ text, parts }: PromptContent): ConversationMessage {
  if (parts.length === 0) return { role: 'user', content: text };
  const content = parts.map(
    (part): UserPart =>
      part.kind === 'text'
        ? { type: 'text', text: textOfPart(part) }
        : { type: 'image_url', image_url: { url: `${FILE_MARK}${part.contentType}:${part.path}` } },
  );
  return { role: 'user', content: [{ type: 'text', text }, ...content] };
}

export interface ImageReading {
  readonly confine: Confine;
  /** The folder of the files of the session; undefined: there are none. */
  readonly folder: string | undefined;
  /** Whether the model takes images. */
  readonly isShown: boolean;
}

/** The messages with the data of their images, the newest first as far as there is room for them. */
export async function withImages(
  messages: readonly ConversationMessage[],
  reading: ImageReading,
): Promise<readonly ConversationMessage[]> {
  if (!messages.some(hasImage)) return messages;
  let room = MAX_SENT_BYTES;
  const shown: ConversationMessage[] = [];
  for (const message of messages.toReversed()) {
    if (!hasImage(message)) {
      shown.unshift(message);
      continue;
    }
    const content: UserPart[] = [];
    for (const part of message.content) {
      const bytes = part.type === 'text' || !reading.isShown ? undefined : await readImage(part, reading, room);
      room -= bytes?.data.length ?? 0;
      if (part.type === 'text') content.push(part);
      else if (bytes === undefined) content.push({ type: 'text', text: '[an image that is not shown any more]' });
      else content.push({ type: 'image_url', image_url: { url: `data:${bytes.type};base64,${bytes.data}` } });
    }
    shown.unshift({ role: 'user', content });
  }
  return shown;
}

type WithParts = { role: 'user'; content: UserPart[] };

function hasImage(message: ConversationMessage): message is WithParts {
  return Array.isArray(message.content) && message.content.some(({ type }) => type === 'image_url');
}

/** Undefined for a file that is gone, or too large. */
async function readImage(
  { image_url: { url } }: Extract<UserPart, { type: 'image_url' }>,
  { confine, folder }: ImageReading,
  room: number,
): Promise<{ readonly type: string; readonly data: string } | undefined> {
  const [type = '', path = ''] = url.slice(FILE_MARK.length).split(/:(.*)/s, 2);
  if (!url.startsWith(FILE_MARK) || folder === undefined) return undefined;
  try {
    // Confined, because the agent may have put a link in its place.
    return await withFile(confine(folder), path, async ({ handle, size }) =>
      size > room ? undefined : { type, data: (await handle.readFile()).toString('base64') },
    );
  } catch (error) {
    if (error instanceof AppError || errorCode(error) !== '') return undefined;
    throw error;
  }
}
