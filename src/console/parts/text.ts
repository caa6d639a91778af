/** Texts of agents and other people are not trusted: they are shown as text, and what cannot be seen is made visible. */

/** Control, bidirectional and zero-width characters, which can make a command look like another one. */
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is made visible
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Joins two pictures to one, as in 👩‍💻: there it can be seen. */
const JOINER = '\u200d';
const ENDS_IN_PICTURE = /(?:\p{Extended_Pictographic}|\p{Emoji_Modifier})\ufe0f?$/u;
const BEGINS_WITH_PICTURE = /^\p{Extended_Pictographic}/u;
/** No picture has more code units. */
const PICTURE_UNITS = 5;

const joinsPictures = (text: string, at: number) =>
  ENDS_IN_PICTURE.test(text.slice(Math.max(0, at - PICTURE_UNITS), at)) &&
  BEGINS_WITH_PICTURE.test(text.slice(at + 1, at + 1 + PICTURE_UNITS));

/** Replaces characters that cannot be seen by their code points: `U+202E`. */
export function visible(text: string): string {
  return text.replaceAll(HIDDEN, (one, at: number) =>
    one === JOINER && joinsPictures(text, at) ? one : codePointText(one),
  );
}

const codePointText = (one: string) => `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

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
  const seconds = Math.max(0, Math.round(ms / SECOND));
  if (seconds < MINUTE / SECOND) return `${seconds} s`;
  if (ms < HOUR) return `${Math.max(1, Math.floor(ms / MINUTE))} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** Four digits below a cent, otherwise cents. */
export function moneyText(usd: number): string {
  // Not $0.0000, which would say that it costs nothing.
  if (usd > 0 && usd < 0.00005) return '<$0.0001';
  return `$${usd !== 0 && Math.abs(usd) < 0.01 ? usd.toFixed(4) : usd.toFixed(2)}`;
}

export function countText(count: number): string {
  return count.toLocaleString('en-US');
}

/** `1 file`, `2 files`; `many` where it takes more than an s. */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
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

/** A heading, a quotation, or an entry of a list. */
const LINE_START = /^\s*(?:#{1,6}\s+|>\s*|[-*+]\s+(?:\[[ xX]\]\s+)?)+/;
const MARKS = ['***', '**', '*', '~~'];
/** Marks lie within marks, seldom deeper. */
const MAX_DEPTH = 3;
/** A longer line is shown as it is: each mark is looked for up to its end. */
const MAX_MARKED_LENGTH = 1000;

/** A part of a line between marks, and where the line goes on after it. */
interface Marked {
  readonly inside: string;
  readonly isCode: boolean;
  readonly end: number;
}

/** One line without the marks of Markdown. `2 * 3 * 4`, `src/*.ts` and `__init__` are no marks. */
function withoutMarks(text: string, depth = 0): string {
  let plain = '';
  for (let at = 0; at < text.length; ) {
    const marked = codeAt(text, at) ?? linkAt(text, at) ?? emphasisAt(text, at);
    if (marked === undefined) {
      // An unclosed run of marks is kept whole.
      const end = text[at] === '`' ? endOfRun(text, at) : at + 1;
      plain += text.slice(at, end);
      at = end;
      continue;
    }
    const { inside, isCode, end } = marked;
    plain += isCode ? inside.trim() : depth < MAX_DEPTH ? withoutMarks(inside, depth + 1) : inside;
    at = end;
  }
  return plain;
}

function endOfRun(text: string, at: number): number {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end;
}

/** Code between as many backticks on both sides. */
function codeAt(text: string, at: number): Marked | undefined {
  if (text[at] !== '`') return undefined;
  const start = endOfRun(text, at);
  const ticks = text.slice(at, start);
  const end = text.indexOf(ticks, start + 1);
  return end === -1 ? undefined : { inside: text.slice(start, end), isCode: true, end: end + ticks.length };
}

/** What a link or a picture is called. */
function linkAt(text: string, at: number): Marked | undefined {
  const open = text[at] === '!' ? at + 1 : at;
  const close = text[open] === '[' ? text.indexOf('](', open) : -1;
  const end = close === -1 ? -1 : text.indexOf(')', close);
  if (end === -1 || /[()\s]/.test(text.slice(close + 2, end))) return undefined;
  const inside = text.slice(open + 1, close);
  return inside.includes(']') ? undefined : { inside, isCode: false, end: end + 1 };
}

/** What stands between the same marks: `**bold**`, `*so*`, `~~not~~`. */
function emphasisAt(text: string, at: number): Marked | undefined {
  const mark = MARKS.find((one) => text.startsWith(one, at));
  if (mark === undefined || /[\w*~/\\]/.test(text[at - 1] ?? '')) return undefined;
  const start = at + mark.length;
  if (/[\s*~]/.test(text[start] ?? ' ')) return undefined;
  for (let end = text.indexOf(mark, start + 1); end !== -1; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] ?? '';
    if (/[\s*~]/.test(text[end - 1] ?? '') || /[\w*~/]/.test(after)) continue;
    return { inside: text.slice(start, end), isCode: false, end: end + mark.length };
  }
  return undefined;
}

/** The first line of a task or an answer, as it is shown where there is room for one. */
export function titleText(title: string): string {
  const plain = title.length > MAX_MARKED_LENGTH ? title : withoutMarks(title.replace(LINE_START, '')).trim();
  return visible(plain || title);
}
