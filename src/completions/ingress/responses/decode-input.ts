import { AppError } from '../../../platform/errors/app-error.ts';
import type { ChatMessage, ContentPart } from '../../contract/chat.ts';
import type { InputItem, InputPart, ResponsesRequest } from '../../contract/responses.ts';
import { customArguments } from '../../dialects/conversation.ts';
import type { Steps } from '../../dialects/steps.ts';
import { createConversation } from '../conversation-builder.ts';
import { isRecord, requiredText } from '../decoded-request.ts';
import type { ToolTranslation } from './responses-tools.ts';

export interface DecodedInput {
  readonly messages: ChatMessage[];
  /** Items that only mean something to OpenAI's own servers. */
  readonly dropped: readonly string[];
}

/** Items that stand for something that is kept elsewhere. */
const STORED_ITEMS = new Set(['item_reference', 'compaction', 'compaction_summary', 'context_compaction']);

/** The items of a request as messages: an assistant's reasoning, text and calls are one message in chat completions. */
export function decodeInput(
  input: ResponsesRequest['input'],
  instructions: string,
  tools: ToolTranslation,
  steps: Steps,
): DecodedInput {
  const conversation = createConversation();
  const dropped: string[] = [];
  if (instructions !== '') conversation.instruct(instructions);

  function decodeItem(item: InputItem, path: string, before: InputItem | undefined): void {
    steps.take(1 + countOf(item.content) + countOf(item.output) + countOf(item.summary));
    switch (item.type ?? 'message') {
      case 'message':
        decodeMessage(item, path, before?.role === 'assistant');
        return;
      case 'reasoning':
        conversation.reason(reasoningText(item), item.encrypted_content ?? '');
        return;
      case 'function_call':
        conversation.call(callId(item, path), chatName(item, path), requiredText(item.arguments, `${path}/arguments`));
        return;
      case 'custom_tool_call': {
        const text = requiredText(item.input, `${path}/input`);
        conversation.call(callId(item, path), chatName(item, path), customArguments(text));
        return;
      }
      case 'function_call_output':
      case 'custom_tool_call_output':
        conversation.result(callId(item, path), outputParts(item.output, `${path}/output`));
        return;
      case 'additional_tools':
        return;
      default:
        if (STORED_ITEMS.has(item.type ?? '')) {
          throw new AppError('NOTHING_STORED', { field: `an item of type ${item.type}`, issues: [{ path }] });
        }
        dropped.push(`input.${item.type}`);
    }
  }

  function decodeMessage({ role = 'user', content }: InputItem, path: string, afterAnother: boolean): void {
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
    if (role === 'assistant') conversation.say((afterAnother ? '\n\n' : '') + parts.map(plainText).join(''));
    else if (role === 'system' || role === 'developer') conversation.instruct(parts.map(plainText).join('\n\n'));
    else conversation.ask(parts.map((part, index) => decodePart(part, `${path}/content/${index}`)));
  }

  function chatName({ namespace, name }: InputItem, path: string): string {
    return tools.chatName(namespace ?? undefined, requiredText(name, `${path}/name`));
  }

  if (typeof input === 'string') conversation.ask([{ type: 'text', text: input }]);
  else for (const [index, item] of input.entries()) decodeItem(item, `/input/${index}`, input[index - 1]);
  return { messages: conversation.messages('/input'), dropped };
}

function decodePart(part: InputPart, path: string): ContentPart {
  const { type } = part;
  if (type === 'input_image' || type === 'input_file') return decodeAttachment(part, path);
  if (type === 'input_audio' && part.input_audio !== undefined) return { type, input_audio: part.input_audio };
  return { type: 'text', text: requiredText(part.text ?? part.refusal, `${path}/text`) };
}

function decodeAttachment(part: InputPart, path: string): ContentPart {
  const { image_url: imageUrl, file_id: fileId, filename, detail } = part;
  if (part.type === 'input_image' && typeof imageUrl === 'string') {
    return { type: 'image_url', image_url: { url: imageUrl, ...(typeof detail === 'string' && { detail }) } };
  }
  if (typeof fileId === 'string') return { type: 'file', file: { file_id: fileId } };
  const data = requiredText(
    part.file_data ?? part.file_url,
    `${path}/${part.type === 'input_image' ? 'image_url' : 'file_data'}`,
  );
  return { type: 'file', file: { file_data: data, ...(typeof filename === 'string' && { filename }) } };
}

/** What a tool gave back: text, or parts of text, images and files. */
function outputParts(output: unknown, path: string): readonly ContentPart[] {
  if (!Array.isArray(output)) return [{ type: 'text', text: typeof output === 'string' ? output : jsonText(output) }];
  return output.map((part: unknown, index) => {
    if (!isRecord(part) || typeof part.type !== 'string') return { type: 'text', text: jsonText(part) };
    return part.type === 'input_image' || part.type === 'input_file'
      ? decodeAttachment(part as InputPart, `${path}/${index}`)
      : { type: 'text', text: typeof part.text === 'string' ? part.text : jsonText(part) };
  });
}

function countOf(value: unknown): number {
  return Array.isArray(value) ? value.length : 0;
}

function jsonText(value: unknown): string {
  return JSON.stringify(value) ?? '';
}

function plainText({ text, refusal }: Pick<InputPart, 'text' | 'refusal'>): string {
  return text ?? refusal ?? '';
}

/** What we sent as a summary comes back as one; other makers' reasoning may be in `content`. */
function reasoningText({ summary, content }: InputItem): string {
  const parts = summary !== undefined && summary !== null && summary.length > 0 ? summary : content;
  return Array.isArray(parts) ? parts.map(({ text }) => text ?? '').join('') : '';
}

function callId(item: InputItem, path: string): string {
  return requiredText(item.call_id, `${path}/call_id`);
}
