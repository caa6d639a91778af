import { useEffect, useState } from 'react';
import { Field, type FieldProps } from '../../parts/parts.tsx';

/** The rule that a page can check before it asks; the server also refuses passwords that are known or contain the name. */
const MIN_LENGTH = 8;

export const PASSWORD_HINT = `At least ${MIN_LENGTH} characters, and none of the common ones.`;

/** What is wrong with a password, as far as the page can know. */
export function passwordProblem(password: string): string | undefined {
  return password.length < MIN_LENGTH ? `The password needs at least ${MIN_LENGTH} characters.` : undefined;
}

/** The field for a password that a person chooses. */
export function NewPasswordField(
  props: Pick<FieldProps, 'value' | 'onChange' | 'autoFocus' | 'hint'> & Partial<Pick<FieldProps, 'label'>>,
) {
  return (
    <Field label="Password" hint={PASSWORD_HINT} {...props} type="password" autoComplete="new-password" required />
  );
}

/**
 * The token behind the "#" of a mailed or printed link, which no server is sent. It is removed from the address bar once the screen
 * is shown: React may call a screen, throw the result away and call it again, which would find no token.
 */
export function useToken(): string {
  const [token] = useState(() => {
    const given = location.hash.slice(1);
    return given.includes('=') ? (new URLSearchParams(given).get('token') ?? '') : given;
  });
  useEffect(() => {
    if (location.hash !== '') history.replaceState(null, '', location.pathname + location.search);
  }, []);
  return token;
}
