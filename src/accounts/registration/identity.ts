import { domainToASCII, domainToUnicode } from 'node:url';
import { AppError } from '../../platform/errors/app-error.ts';

const MAX_EMAIL = 254;
const MAX_LOCAL = 64;
const MAX_LABEL = 63;
const LOCAL_PART = /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+$/;
const LABEL = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** Scripts whose letters are taken for those of another one when they stand side by side. */
const SCRIPTS: readonly RegExp[] = [
  /\p{Script=Latin}/u,
  /\p{Script=Cyrillic}/u,
  /\p{Script=Greek}/u,
  /\p{Script=Armenian}/u,
  /\p{Script=Cherokee}/u,
  /\p{Script=Hebrew}/u,
  /\p{Script=Arabic}/u,
  /\p{Script=Georgian}/u,
];
/** Letters of other scripts that cannot be told from Latin ones: a label of nothing else passes for a Latin one. */
const LATIN_LOOK_ALIKES = /^[аԁеһіјӏорԛѕԝхусвкмнтгпѵѡαικνορτυχωγ0-9-]+$/u;

/**
 * An e-mail address as addresses are stored and compared: lower case, the domain in ASCII (IDNA). Undefined for what is no
 * address, and for every spelling that software would silently turn into another address: full-width letters, invisible
 * characters, letters of mixed scripts (contract/accounts, Rules: E-mail addresses).
 */
export function normalizeEmail(text: string): string | undefined {
  if (text.length > MAX_EMAIL || text !== text.normalize('NFC')) return undefined;
  const at = text.lastIndexOf('@');
  if (at < 1) return undefined;
  const local = asciiLowerCase(text.slice(0, at));
  if (local.length > MAX_LOCAL || !local.split('.').every((atom) => LOCAL_PART.test(atom))) return undefined;
  const domain = normalizeDomain(text.slice(at + 1));
  if (domain === undefined) return undefined;
  const address = `${local}@${domain}`;
  return address.length > MAX_EMAIL ? undefined : address;
}

function normalizeDomain(text: string): string | undefined {
  const given = lowerCase(text);
  if (given === undefined) return undefined;
  const ascii = domainToASCII(given);
  const labels = ascii.split('.');
  const [topLevel = ''] = labels.slice(-1);
  if (labels.length < 2 || !labels.every(isLabel) || /^\d+$/.test(topLevel)) return undefined;
  const unicode = domainToUnicode(ascii);
  // What the conversion changed beyond the case was a disguise. Someone may also write the ASCII form themselves.
  if (given !== unicode && given !== ascii) return undefined;
  return unicode.split('.').some(isDisguised) ? undefined : ascii;
}

function isLabel(label: string): boolean {
  return label.length <= MAX_LABEL && LABEL.test(label);
}

function isDisguised(label: string): boolean {
  if (/^[a-z0-9-]*$/.test(label)) return false;
  return SCRIPTS.filter((script) => script.test(label)).length > 1 || LATIN_LOOK_ALIKES.test(label);
}

/** Undefined when a letter that is not ASCII becomes one that is: the Kelvin sign is no "k". */
function lowerCase(text: string): string | undefined {
  let lowered = '';
  for (const character of text) {
    const lower = character.toLowerCase();
    if (character > '\x7f' && /[\0-\x7f]/.test(lower)) return undefined;
    lowered += lower;
  }
  return lowered;
}

function asciiLowerCase(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** The address as it is stored. Throws INVALID_EMAIL. */
export function requireEmail(text: string): string {
  const email = normalizeEmail(text);
  if (email === undefined) throw new AppError('INVALID_EMAIL');
  return email;
}

const MAX_NAME_LENGTH = 64;

/**
 * A user's name as it is shown; undefined when it cannot be one. Without "@", so that no name passes for an e-mail address
 * at the login, and without characters that cannot be seen.
 */
export function normalizeName(text: string): string | undefined {
  if (text.length > 4 * MAX_NAME_LENGTH || !text.isWellFormed()) return undefined;
  const name = text.normalize('NFC').trim();
  if (name === '' || [...name].length > MAX_NAME_LENGTH) return undefined;
  // NFKC turns some signs into "@": the full-width one, and whatever else compares equal.
  return /[\p{C}\p{Zl}\p{Zp}@]/u.test(name.normalize('NFKC')) ? undefined : name;
}

/** How names are compared: whatever looks the same up to case, width and composition is the same name. */
export function nameKey(name: string): string {
  return name.normalize('NFKC').trim().toLowerCase().normalize('NFKC');
}
