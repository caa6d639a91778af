import type { JobRow } from '../storage/bridge-schema.ts';
import { outcomeOf } from './job-record.ts';

/** What chat systems take at least. */
const MOST_CHARACTERS = 3500;
const INVISIBLE_SPACE = '\u200b';

/** The Markdown text of a result card: a heading with id and status, then what came of the job. */
export function cardText(job: JobRow): string {
  const { result, error } = outcomeOf(job);
  const words = [result?.summary, result?.output, error].find((text) => typeof text === 'string' && text.trim() !== '');
  const heading = `**Job ${job.id}: ${job.status}**`;
  return words === undefined ? heading : `${heading}\n\n${neutralise(shorten(String(words)))}`;
}

const REPLACEMENTS: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  // A link needs both brackets, and a backslash before one of ours would take its effect away.
  '[': '\\[',
  ']': '\\]',
  '\\': '\\\\',
  // Nobody is called by a name that is not one.
  '@': `@${INVISIBLE_SPACE}`,
  '＠': `＠${INVISIBLE_SPACE}`,
};

/** An agent's words may come from anywhere: they call nobody, hold no HTML and hide no address behind a text. */
export function neutralise(text: string): string {
  return text.replaceAll(/[&<>[\]\\@＠]/g, (character) => REPLACEMENTS[character] ?? '');
}

function shorten(text: string): string {
  return text.length <= MOST_CHARACTERS ? text : `${text.slice(0, MOST_CHARACTERS).toWellFormed()}…`;
}
