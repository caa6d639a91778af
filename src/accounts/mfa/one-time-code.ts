import { AppError } from '../../platform/errors/app-error.ts';

/**
 * The six digits that someone typed, however they typed them: spaces, full-width digits. Throws INVALID_REQUEST for what
 * cannot be a code; leading zeros are digits like any other.
 */
export function normalizeCode(text: string): string {
  const code = text.slice(0, 64).normalize('NFKC').replaceAll(/\s/g, '');
  if (!/^[0-9]{6}$/.test(code)) throw new AppError('INVALID_REQUEST', { reason: 'a code has six digits' });
  return code;
}
