import { AppError } from '../../platform/errors/app-error.ts';
import { isCommonPassword } from './common-passwords.ts';

const LEAST = 8;
const MOST = 256;
/** A shorter name or part of an address is in many good passwords by chance. */
const LEAST_IDENTITY = 4;

/** Throws unless it can be this person's password. Nothing is trimmed, cut or demanded of its characters. */
export function checkNewPassword(password: string, identity: { readonly name: string; readonly email: string }): void {
  if (!password.isWellFormed()) throw new AppError('INVALID_REQUEST', { reason: 'the password is not valid Unicode' });
  const length = characterCount(password);
  if (length < LEAST) throw new AppError('PASSWORD_TOO_SHORT', { least: LEAST });
  if (length > MOST) throw new AppError('PASSWORD_TOO_LONG', { most: MOST });
  if (isCommonPassword(password)) throw new AppError('PASSWORD_TOO_COMMON');
  if (containsIdentity(password, identity)) throw new AppError('PASSWORD_CONTAINS_IDENTITY');
}

/** Code points, stopping just past the limit. */
function characterCount(text: string): number {
  if (text.length > 2 * MOST) return MOST + 1;
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
    .some((word) => (word.length >= LEAST_IDENTITY ? text.includes(word) : word !== '' && text === word));
}

function comparable(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}
