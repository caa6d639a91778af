import { AppError } from '../../platform/errors/app-error.ts';
import type { IsBreached } from '../../platform/secrets/password-filter.ts';
import { COMMON_PASSWORD_WORDS } from './common-password-words.ts';

const MIN_CHARACTERS = 8;
const MAX_CHARACTERS = 256;
/** A shorter name, or part of an address, occurs in many good passwords by chance. */
const MIN_IDENTITY = 4;

/** Throws unless this person may use the password. It is neither trimmed nor cut, and there are no composition rules. */
export function checkNewPassword(
  password: string,
  identity: { readonly name: string; readonly email: string },
  isBreached: IsBreached,
): void {
  if (!password.isWellFormed()) throw new AppError('INVALID_REQUEST', { reason: 'the password is not valid Unicode' });
  const length = characterCount(password);
  if (length < MIN_CHARACTERS) throw new AppError('PASSWORD_TOO_SHORT', { least: MIN_CHARACTERS });
  if (length > MAX_CHARACTERS) throw new AppError('PASSWORD_TOO_LONG', { most: MAX_CHARACTERS });
  if (isCommonPassword(password) || isBreached(password)) throw new AppError('PASSWORD_TOO_COMMON');
  if (containsIdentity(password, identity)) throw new AppError('PASSWORD_CONTAINS_IDENTITY');
}

/** Code points, stopping just past the limit. */
function characterCount(text: string): number {
  if (text.length > 2 * MAX_CHARACTERS) return MAX_CHARACTERS + 1;
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

function containsIdentity(
  password: string,
  { name, email }: { readonly name: string; readonly email: string },
): boolean {
  const text = comparable(password);
  const [local = ''] = email.split('@');
  return [name, local, email]
    .map(comparable)
    .some((word) => (word.length >= MIN_IDENTITY ? text.includes(word) : word !== '' && text === word));
}

function comparable(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

/** Characters that people use in place of letters. */
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
 * Returns whether a password is common: a word of the list, also with replaced letters, with digits and signs around it or
 * repeated twice; or a short run of equal or neighbouring characters.
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

/** Removes digits and signs at both ends, which people add to satisfy rules. */
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

/** Returns the half of a text that is one word twice; empty for any other text. */
function half(text: string): string {
  const first = text.slice(0, text.length / 2);
  return text.length > 0 && first + first === text ? first : '';
}

const ROWS = ['abcdefghijklmnopqrstuvwxyz', '01234567890', 'qwertyuiop', 'asdfghjkl', 'zxcvbnm', 'qwertzuiop'];
/** Longer runs are not common. */
const MAX_RUN = 12;

/** Letters and digits that are all the same, or run along a row of the keyboard, the alphabet or the digits. */
function isMonotonous(text: string): boolean {
  if (text.length > MAX_RUN || !/^[a-z0-9]+$/.test(text)) return false;
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

/** Argon2id, off the event loop. */
export interface PasswordHasher {
  hash(password: string): Promise<string>;
  /** Whether it is the password. With no hash to compare with the same work is done, and the answer is no. */
  verify(hash: string | null, password: string): Promise<boolean>;
  /** Whether a hash was made with other parameters than new ones are. */
  isOutdated(hash: string): boolean;
}

interface HashParameters {
  /** In KiB. */
  readonly memoryCost: number;
  readonly timeCost: number;
  readonly parallelism: number;
}

interface PasswordHasherOptions {
  readonly parameters?: HashParameters;
  /** How many are computed at the same time. */
  readonly concurrency: number;
  /** How many more may wait; one more is refused with OVERLOADED. */
  readonly waiting?: number;
}

const PARAMETERS: HashParameters = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
const WAITING = 1000;
/** Loaded with the first password, and looked up once: each `import()` of a loaded module still costs a tenth of a millisecond. */
let loading: Promise<typeof import('@node-rs/argon2')> | undefined;
const argon2 = () => {
  loading ??= import('@node-rs/argon2');
  return loading;
};

export function createPasswordHasher(options: PasswordHasherOptions): PasswordHasher {
  const { parameters = PARAMETERS, concurrency, waiting = WAITING } = options;
  const limited = createLimit(concurrency, waiting);
  const prefix = `$argon2id$v=19$m=${parameters.memoryCost},t=${parameters.timeCost},p=${parameters.parallelism}$`;
  // Compared for unknown users: it costs as much as any other hash, and no password matches it.
  const nobody = `${prefix}${'A'.repeat(22)}$${'A'.repeat(43)}`;

  return {
    hash: (password) => limited(async () => (await argon2()).hash(password, parameters)),
    async verify(stored, password) {
      const matches = await limited(async () => (await argon2()).verify(stored ?? nobody, password));
      return matches && stored !== null;
    },
    isOutdated: (stored) => !stored.startsWith(prefix),
  };
}

/** Lets so many tasks run at the same time, in the order they came. */
function createLimit(concurrency: number, waiting: number) {
  const line: (() => void)[] = [];
  let running = 0;
  return async <Result>(task: () => Promise<Result>): Promise<Result> => {
    if (running >= concurrency) {
      if (line.length >= waiting) throw new AppError('OVERLOADED');
      await new Promise<void>((resolve) => line.push(resolve));
    } else {
      running += 1;
    }
    try {
      return await task();
    } finally {
      // The place goes straight to the next in line: no task that comes until then can take it.
      const next = line.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}
