import type { Credential, OwnSession } from '../../accounts/contract/login.ts';
import type { Subscription } from '../../accounts/contract/own-data.ts';
import type { AccessToken, NewAccessToken } from '../../accounts/contract/tokens.ts';
import { auth, forgetBearer, type LoginAnswer, type Person, requirePasskeys } from './accounts.ts';

/** What people see and change of their own account. */

export interface MfaStatus {
  readonly enabled: boolean;
  readonly recoveryCodesLeft: number;
}
export interface Enrolment {
  readonly secret: string;
  /** An SVG as a data URL. */
  readonly qr: string;
  readonly mfaToken: string;
}
/** What only the owner knows, for changes that a session alone must not make. */
export interface Proof {
  readonly password: string;
  readonly code?: string;
  readonly recoveryCode?: string;
}

const replacesLogin = { replacesLogin: true } as const;

/** The bearer token of turns belongs to the login session before. */
async function withNewLogin<Value>(work: Promise<Value>): Promise<Value> {
  const value = await work;
  forgetBearer();
  return value;
}

export const rename = (name: string) => auth<{ user: Person }>('PATCH', 'profile', { name });
export const changePassword = (currentPassword: string, newPassword: string) =>
  withNewLogin(auth('POST', 'password/change', { currentPassword, newPassword }, replacesLogin));

export const readMfa = () => auth<MfaStatus>('GET', 'mfa/status');
export const provisionMfa = () => auth<Enrolment>('POST', 'mfa/totp/provision', {});
export const confirmMfa = (token: string, code: string) =>
  withNewLogin(auth<{ recoveryCodes: string[] }>('POST', 'mfa/totp/verify', { token, code }, replacesLogin));
export const disableMfa = (proof: Proof) => auth('POST', 'mfa/disable', proof);
export const renewRecoveryCodes = (proof: Proof) =>
  auth<{ recoveryCodes: string[] }>('POST', 'mfa/recovery-codes', proof);

export const listLogins = () => auth<{ sessions: OwnSession[] }>('GET', 'sessions').then(({ sessions }) => sessions);
export const endLogin = (id: string) => auth<void>('DELETE', `sessions/${encodeURIComponent(id)}`);
export const endOtherLogins = () => auth<void>('DELETE', 'sessions');

/** Needs a login from the last five minutes. */
export const listCredentials = () =>
  auth<{ credentials: Credential[] }>('GET', 'credentials').then(({ credentials }) => credentials);
export const removeCredential = (id: string) => auth<void>('DELETE', `credentials/${encodeURIComponent(id)}`);

/** Adds a passkey: the browser asks the person. */
export async function addPasskey(name: string): Promise<void> {
  requirePasskeys();
  const query = { add: '1' };
  const { publicKey } = await auth<{ publicKey: PublicKeyCredentialCreationOptionsJSON }>(
    'POST',
    'passkeys/options',
    {},
    { query },
  );
  const options = PublicKeyCredential.parseCreationOptionsFromJSON(publicKey);
  const credential = (await navigator.credentials.create({ publicKey: options })) as PublicKeyCredential | null;
  if (credential === null) throw new Error('No passkey was created.');
  await auth('POST', 'passkeys/verify', { credential: credential.toJSON(), name }, { query });
}

export const listSubscriptions = () =>
  auth<{ subscriptions: Subscription[] }>('GET', 'subscriptions').then(({ subscriptions }) => subscriptions);
export const cancelSubscription = (externalId: string) =>
  auth<{ subscription: Subscription }>('POST', 'subscriptions/cancel', { externalId });

export const listTokens = () => auth<{ tokens: AccessToken[] }>('GET', 'tokens').then(({ tokens }) => tokens);
/** Needs a login from the last five minutes. */
export const createToken = (input: NewAccessToken) => auth<AccessToken & { token: string }>('POST', 'tokens', input);
export const revokeToken = (id: string) => auth<void>('DELETE', `tokens/${encodeURIComponent(id)}`);

/** Deletes the account in 14 days. Needs a login from the last five minutes. */
export const deleteAccount = () => auth<{ user: Person }>('POST', 'delete', {});
/** Undoes that. */
export const keepAccount = () => auth<{ user: Person }>('DELETE', 'delete');

/** Ends the login session that a newer one of this browser has taken the place of. */
export async function replaceLogin(logIn: () => Promise<LoginAnswer>): Promise<LoginAnswer> {
  const { session } = await auth<{ session: { id: string } }>('GET', 'session');
  const answer = await logIn();
  if (!answer.mfaRequired) {
    forgetBearer();
    await endLogin(session.id).catch(() => undefined);
  }
  return answer;
}
