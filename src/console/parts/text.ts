/** Texts of agents and other people are not trusted: they are shown as text, and what cannot be seen is made visible. */

/** Control, bidirectional and zero-width characters, which can make a command look like another one. */
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is made visible
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Replaces characters that cannot be seen by their code points: `U+202E`. */
export function visible(text: string): string {
  return text.replaceAll(HIDDEN, (one) => `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** A text of fewer characters is one piece; a longer one has pieces of at least half as many. */
const MAX_PIECE = 4000;

/**
 * Cuts a long text into pieces, which are drawn as blocks of their own. While the text grows, all but the last two stay the same,
 * and a browser lays out only those again: a single block would be laid out as a whole for every word.
 * `isEnd` finds where a piece may end: behind that character.
 */
export function pieces(text: string, isEnd: RegExp): readonly string[] {
  const found: string[] = [];
  let start = 0;
  while (text.length - start > MAX_PIECE) {
    const earliest = start + MAX_PIECE / 2;
    const place = text.slice(earliest, start + MAX_PIECE).search(isEnd);
    const end = place === -1 ? start + MAX_PIECE - (isPaired(text, start + MAX_PIECE) ? 1 : 0) : earliest + place + 1;
    found.push(text.slice(start, end));
    start = end;
  }
  return [...found, text.slice(start)];
}

/** Whether the character at a place is the second half of one. */
const isPaired = (text: string, place: number) => /[\udc00-\udfff]/.test(text.charAt(place));

/** More characters of one text are not drawn: the end of it counts, and an export has the rest. */
const MAX_SHOWN = 200_000;
/** The beginning moves in such steps while a text grows, so that most of it stays as it was. */
const SHOWN_STEP = 50_000;

/** The end of a text, as much as is drawn, and how many characters are before it. */
export function endOf(text: string): { readonly shown: string; readonly hidden: number } {
  if (text.length <= MAX_SHOWN) return { shown: text, hidden: 0 };
  const hidden = Math.ceil((text.length - MAX_SHOWN) / SHOWN_STEP) * SHOWN_STEP;
  return { shown: text.slice(hidden), hidden };
}

const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;

/** The address of a link that may be offered, or undefined. */
export function safeLink(href: string): string | undefined {
  if (!SAFE_LINK.test(href)) return undefined;
  return URL.parse(href)?.href;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `12 s`, `3 min`, `2 h`, `5 d`. */
export function spanText(ms: number): string {
  if (ms < MINUTE) return `${Math.max(0, Math.round(ms / SECOND))} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** Four digits below a cent, otherwise cents. */
export function moneyText(usd: number): string {
  return `$${usd !== 0 && Math.abs(usd) < 0.01 ? usd.toFixed(4) : usd.toFixed(2)}`;
}

export function countText(count: number): string {
  return count.toLocaleString('en-US');
}

/** A path as it is seen from a folder above it. */
export function pathInside(path: string, folder: string): string {
  return folder !== '' && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;
}

/** The last part of a path, with the folder above where there is one. */
export function shortPath(path: string): string {
  return path.split('/').filter(Boolean).slice(-2).join('/');
}

/** In which times are shown here. */
export const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The day of a moment in that zone: `2030-01-31`. */
export function dayText(at: number): string {
  const date = new Date(at);
  const two = (number: number) => `${number}`.padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** What is shown of a moment. */
export type Shown = 'day and time' | 'day' | 'time';

/** A moment in that zone, as the language of the browser writes it. The only place where the console writes times. */
export function momentText(at: number | string, shown: Shown = 'day and time'): string {
  const date = new Date(at);
  if (shown === 'day') return date.toLocaleDateString();
  return shown === 'time' ? date.toLocaleTimeString() : date.toLocaleString();
}

/** A moment with the name of the zone. */
export function zonedText(at: number | string): string {
  return `${momentText(at)} ${TIME_ZONE}`;
}

/** Code as it is, links and pictures, and what stands between the same marks: `**bold**`, `*so*`, `~~not~~`. */
const CODE_OR_LINK = /(`+)(.+?)\1|!?\[([^\]]*)\]\([^()\s]*\)/g;
const MARKED = /(?<![\w*~/\\])(\*{1,3}|~~)(?=[^\s*~])(.*?[^\s*~])\1(?![\w*~/])/g;
/** A heading, a quotation, or an entry of a list. */
const LINE_START = /^\s*(?:#{1,6}\s+|>\s*|[-*+]\s+(?:\[[ xX]\]\s+)?)+/;
/** Marks lie within marks, seldom deeper. */
const MAX_MARKS = 3;

/** One line without the marks of Markdown. `2 * 3 * 4`, `src/*.ts` and `__init__` are no marks. */
function withoutMarks(line: string): string {
  const code: string[] = [];
  let text = line.replace(LINE_START, '').replaceAll(CODE_OR_LINK, (_all, _ticks, inside, label) => {
    if (inside === undefined) return label;
    code.push(inside.trim());
    return `\u0000${code.length - 1}\u0000`;
  });
  for (let round = 0; round < MAX_MARKS; round += 1) text = text.replaceAll(MARKED, '$2');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what stands for code above
  return text.replaceAll(/\u0000(\d+)\u0000/g, (_all, place) => code[Number(place)] ?? '').trim();
}

/** The first line of a task or an answer, as it is shown where there is room for one. */
export function titleText(title: string): string {
  // NUL stands for code above; a title that has one is not from a person.
  return visible((title.includes('\u0000') ? '' : withoutMarks(title)) || title);
}
