/** A file that came with the prompt of a turn, in a folder that the agent may read. */
export interface PlacedFile {
  readonly name: string;
  readonly contentType: string;
  readonly sizeBytes: number;
  /** Where it is; of one that was not sent, what the app called it. */
  readonly path: string;
  /** Where programs in the sandbox find it, if not there. */
  readonly fencedPath?: string | undefined;
  readonly kind: 'image' | 'text' | 'file' | 'unsent';
  /** Its bytes. The agent may have put something else in its place: links and private files are refused. */
  read(): Promise<Buffer>;
}

/** What an agent takes besides the text of the prompt. */
export interface AcceptedContent {
  readonly images: boolean;
  readonly texts: boolean;
}

/** A file that is shown to the agent as a part of the prompt. */
export type PromptPart = Omit<PlacedFile, 'kind' | 'read' | 'fencedPath'> &
  ({ readonly kind: 'image'; readonly data: string } | { readonly kind: 'text'; readonly text: string });

export interface PromptContent {
  /** The prompt, and the names of the files that are not shown. */
  readonly text: string;
  readonly parts: readonly PromptPart[];
  /** What people should know. */
  readonly notes: readonly string[];
}

/** A longer text is a file. */
export const MAX_TEXT_BYTES = 128 * 1024;
/** Of all parts of one prompt; what comes after is a file. */
const MAX_PARTS_BYTES = 5 * 1024 * 1024;

/** Shows files to an agent as far as it takes them, and names the others in the prompt. */
export async function promptContent(
  prompt: string,
  files: readonly PlacedFile[] = [],
  accepted: AcceptedContent,
): Promise<PromptContent> {
  if (files.length === 0) return { text: prompt, parts: [], notes: [] };
  const parts: PromptPart[] = [];
  const readable: string[] = [];
  const unsent: string[] = [];
  const notes: string[] = [];
  let room = MAX_PARTS_BYTES;
  for (const file of files) {
    const { kind, name, path, contentType, sizeBytes } = file;
    if (kind === 'unsent') {
      unsent.push(path === '' || path === name ? `- ${name}` : `- ${name} (${path})`);
      continue;
    }
    const isTaken = kind === 'image' ? accepted.images : kind === 'text' && accepted.texts;
    if (isTaken && sizeBytes <= room) {
      room -= sizeBytes;
      parts.push(await partOf(file));
      continue;
    }
    const isBlind = kind === 'image' && !accepted.images;
    if (isBlind) notes.push(`This agent cannot see images: ${name} is a file that it can only read.`);
    const remark = isBlind ? '; you cannot see images, so say so if the task needs it' : '';
    readable.push(`- ${path} (${contentType}, ${sizeBytes} bytes${remark})`);
  }
  const lists = [
    ...(readable.length > 0 ? ['Attached files, which you can read:', ...readable] : []),
    ...(unsent.length > 0 ? ['Files that the user has named but not sent:', ...unsent] : []),
  ];
  return { text: lists.length === 0 ? prompt : `${prompt}\n\n${lists.join('\n')}`, parts, notes };
}

async function partOf({ kind, read, fencedPath, ...file }: PlacedFile): Promise<PromptPart> {
  const bytes = await read();
  return kind === 'image'
    ? { ...file, kind, data: bytes.toString('base64') }
    : { ...file, kind: 'text', text: bytes.toString('utf8') };
}

/** A text for agents that have no place for files in their prompts. */
export function textOfPart({ name, text }: Extract<PromptPart, { kind: 'text' }>): string {
  return `Attached file ${name}:\n\n${text}`;
}
