import { COMMON_PASSWORD_WORDS } from './common-password-words.ts';

/** What is put in place of letters. */
const LETTERS: Readonly<Record<string, string>> = {
  '0': 'o',
  '1': 'i',
  '3': 'e',
  '4': 'a',
  '5': 's',
  '7': 't',
  '@': 'a',
  $: 's',
  '!': 'i',
};

let known: ReadonlySet<string> | undefined;

/**
 * Whether a password is among the first that are tried: in the list itself, or a word of it with letters replaced, digits
 * and signs around it, or said twice; or a short run of the same or neighbouring characters.
 */
export function isCommonPassword(password: string): boolean {
  known ??= new Set(COMMON_PASSWORD_WORDS.trim().split(/\s+/));
  const text = password.normalize('NFKC').toLowerCase();
  const words = known;
  return isMonotonous(text) || variants(text).some((variant) => words.has(variant) || words.has(half(variant)));
}

function variants(text: string): string[] {
  const bare = withoutEnds(text);
  return [text, plainLetters(text), bare, plainLetters(bare)];
}

/** Digits and signs at both ends are what people add when a rule asks for them. */
function withoutEnds(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && !isLetter(text.charAt(start))) start += 1;
  while (end > start && !isLetter(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isLetter(character: string): boolean {
  return character.toLowerCase() !== character.toUpperCase();
}

function plainLetters(text: string): string {
  let plain = '';
  for (const character of text) plain += LETTERS[character] ?? character;
  return plain;
}

/** The word that is said twice; empty, which is no word, for anything else. */
function half(text: string): string {
  const first = text.slice(0, text.length / 2);
  return text.length > 0 && first + first === text ? first : '';
}

const ROWS = ['abcdefghijklmnopqrstuvwxyz', '01234567890', 'qwertyuiop', 'asdfghjkl', 'zxcvbnm', 'qwertzuiop'];
/** Longer ones are not common any more. */
const LONGEST_RUN = 12;

/** Letters and digits that are all the same, or run along a row of the keyboard, the alphabet or the digits. */
function isMonotonous(text: string): boolean {
  if (text.length > LONGEST_RUN || !/^[a-z0-9]+$/.test(text)) return false;
  let steps = 0;
  for (let index = 1; index < text.length; index += 1) {
    if (areNeighbours(text.charAt(index - 1), text.charAt(index))) steps += 1;
  }
  return steps >= (text.length - 1) * 0.8;
}

function areNeighbours(first: string, second: string): boolean {
  if (first === second) return true;
  return ROWS.some((row) => row.includes(first + second) || row.includes(second + first));
}
