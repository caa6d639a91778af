import type { FirstAdmin, SetupOptions } from '../../accounts/contract/registration.ts';
import { Problem, type RequestOptions, request } from './request.ts';

export interface SystemFacts {
  readonly version: string;
  readonly services: readonly string[];
  /** `open`: no credential is needed; `session`: people log in; `token`: only the token of the bridge. */
  readonly signIn: 'open' | 'session' | 'token';
  readonly setupNeeded: boolean;
  /** Whether this server has the screens of the console, and not only the pages of accounts. */
  readonly console: boolean;
  /** Whether proxy nodes are served here. */
  readonly proxyNodes: boolean;
}

export interface Person {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly role: string;
  readonly mfaEnabled: boolean;
  readonly permissions: readonly string[];
  /** When the account is deleted, because the person asked for it. */
  readonly deletesAt?: string;
}

export interface LoginMethods {
  readonly providers: readonly { readonly id: string; readonly label: string }[];
  readonly registration: 'open' | 'invite' | 'closed';
}

/** The second factor is still missing. */
interface SecondFactor {
  readonly mfaRequired: true;
  readonly mfaMethods: readonly string[];
  readonly mfaTicket: string;
}
export type LoginAnswer = { readonly mfaRequired: false; readonly user: Person } | SecondFactor;

type AuthOptions = Pick<RequestOptions, 'query' | 'replacesLogin'>;

export const auth = <Value>(method: string, path: string, body?: unknown, options: AuthOptions = {}) =>
  request<Value>(method, `/api/auth/${path}`, { ...options, body });
const replacesLogin: AuthOptions = { replacesLogin: true };

export const readSystem = () => request<SystemFacts>('GET', '/api/system');

/** The facts that came with the page; undefined where the server could not tell. */
export function systemOfPage(): SystemFacts | undefined {
  const text = document.querySelector<HTMLMetaElement>('meta[name=system]')?.content ?? '';
  return text === '' ? undefined : (JSON.parse(text) as SystemFacts);
}
export const readMethods = () => auth<LoginMethods>('GET', 'methods');
export const readPerson = () => auth<{ user: Person }>('GET', 'session').then(({ user }) => user);
export const logIn = (identifier: string, password: string) =>
  auth<LoginAnswer>('POST', 'login', { identifier, password }, replacesLogin);
export const proveSecondFactor = (ticket: string, proof: { code?: string; recoveryCode?: string }) =>
  auth<LoginAnswer>('POST', 'mfa/verify', { mfaTicket: ticket, ...proof }, replacesLogin);
export const exchangeCode = (code: string) => auth<LoginAnswer>('POST', 'token/exchange', { exchange_code: code });
export const logOut = () => auth<void>('DELETE', 'session', undefined, replacesLogin);
export const sendCode = (email: string) => auth('POST', 'register/send', { email });
export const register = (given: { name: string; email: string; password: string; code: string }) =>
  auth('POST', 'register', given);
export const forgot = (email: string) => auth('POST', 'password/forgot', { email });
export const resetPassword = (token: string, password: string) =>
  auth('POST', 'password/forgot/confirm', { token, password });
/** What can be chosen when the first administrator is created. */
export const readSetup = (token: string) => auth<SetupOptions>('POST', 'setup/options', { token });
export const completeSetup = (first: FirstAdmin) => auth<{ user: Person }>('POST', 'setup', first);

/** A program that asks to act for the person. */
export interface DeviceRequest {
  readonly client: string;
  readonly name: string;
  readonly address: string;
  readonly scopes: readonly ('bridge' | 'completions' | 'account')[];
}

/** Both need a login from the last five minutes. */
export const readDeviceRequest = (code: string) =>
  auth<DeviceRequest>('GET', `device/approval/${encodeURIComponent(code)}`);
export const decideDevice = (code: string, approve: boolean) =>
  auth<void>('POST', `device/approval/${encodeURIComponent(code)}`, { approve });
export const acceptInvitation = (given: { token: string; name: string; email?: string; password: string }) =>
  auth<{ user: Person }>('POST', 'invitations/accept', given);

/** Browsers do not offer passkeys to pages that came over plain HTTP from another machine. */
export function requirePasskeys(): void {
  if (typeof PublicKeyCredential === 'function') return;
  throw new Problem('This browser offers passkeys on https addresses and on localhost only.', { code: 'no_passkeys' });
}

/** Logs in with a passkey: the browser asks the person. */
export async function logInWithPasskey(ticket?: string): Promise<LoginAnswer> {
  requirePasskeys();
  const given = ticket === undefined ? {} : { mfa_ticket: ticket };
  const { publicKey } = await auth<{ publicKey: PublicKeyCredentialRequestOptionsJSON }>(
    'POST',
    'passkeys/options',
    given,
  );
  const options = PublicKeyCredential.parseRequestOptionsFromJSON(publicKey);
  const credential = (await navigator.credentials.get({ publicKey: options })) as PublicKeyCredential | null;
  if (credential === null) throw new Error('No passkey was chosen.');
  return auth<LoginAnswer>('POST', 'passkeys/verify', { credential: credential.toJSON(), ...given }, replacesLogin);
}

interface Bearer {
  readonly token: string;
  readonly until: number;
  readonly scopes: readonly string[];
}
let bearer: Bearer | undefined;

async function currentBearer(): Promise<Bearer> {
  if (bearer === undefined || bearer.until < Date.now()) {
    const given = await auth<{ access_token: string; expires_in: number; scope: string }>('POST', 'token/jwt');
    const until = Date.now() + (given.expires_in - 60) * 1000;
    bearer = { token: given.access_token, until, scopes: given.scope.split(' ') };
  }
  return bearer;
}

/** A token for turns, which take no cookies: good for five minutes, kept in memory, renewed a minute before it ends. */
export const bearerToken = async () => (await currentBearer()).token;

/** What the login is good for: without `bridge`, agents do not work for the person. */
export async function readScopes(): Promise<readonly string[]> {
  forgetBearer();
  return (await currentBearer()).scopes;
}

export function forgetBearer(): void {
  bearer = undefined;
}
