import { AppError } from '../../platform/errors/app-error.ts';
import { asObject, textOf } from '../agents/loose-json.ts';

/** What an editor sends as a prompt, as the text that agents get. Kinds that were not announced are refused. */
export function promptText(blocks: readonly unknown[]): string {
  const text = blocks.map(blockText).join('\n\n').trim();
  if (text === '') throw new AppError('INVALID_PARAMS', { reason: 'prompt: there is nothing in it' });
  return text;
}

function blockText(value: unknown): string {
  const block = asObject(value);
  switch (block.type) {
    case 'text':
      return textOf(block.text);
    case 'resource_link':
      return `[${textOf(block.name) || textOf(block.uri)}](${textOf(block.uri)})`;
    case 'resource': {
      const { uri, text } = asObject(block.resource);
      if (typeof text === 'string') return `${textOf(uri)}:\n\n${text}`;
      throw refused('a resource without text');
    }
    default:
      throw refused(typeof block.type === 'string' ? block.type.slice(0, 40) : 'a block without a type');
  }
}

function refused(what: string): AppError {
  return new AppError('INVALID_PARAMS', { reason: `prompt: ${what} is not taken; text and links are` });
}
