import { type ErrorTable, platformErrors } from '../platform/errors/error-table.ts';
import type { ErrorForBody } from '../platform/http/surface.ts';

/** Every error of accounts. Callers see the codes in lower case. */
export const accountsErrors = {
  ...platformErrors,
  CREDENTIALS_IN_QUERY: { status: 400, message: 'Send "{name}" in the body or a header, never in the address.' },
  SESSION_TOKEN_REQUIRED: { status: 401, message: 'Log in first: send the session token as a bearer token or cookie.' },
  PROXY_NODES_OFF: { status: 404, message: 'Proxy nodes are switched off; set accounts.proxy_nodes to true.' },
  INVALID_SESSION: { status: 401, message: 'The session has ended; log in again.' },
  READ_ONLY_ACCOUNT: { status: 403, message: 'This account can read, but not change anything.' },
  RATE_LIMITED: { status: 429, message: 'Too often; try again in {retryAfterSeconds} seconds.' },
  INVALID_EMAIL: { status: 400, message: 'That is not an e-mail address that can be used here.' },
  NAME_REQUIRED: { status: 400, message: 'Give a name: 1 to 64 characters, without "@" and control characters.' },
  MISSING_CREDENTIALS: { status: 400, message: 'Give {fields}.' },
  PASSWORD_TOO_SHORT: { status: 400, message: 'The password needs at least {least} characters.' },
  PASSWORD_TOO_LONG: { status: 400, message: 'The password may have at most {most} characters.' },
  PASSWORD_TOO_COMMON: { status: 400, message: 'That password is too common; choose another.' },
  PASSWORD_CONTAINS_IDENTITY: { status: 400, message: 'The password must not contain your name or e-mail address.' },
  VERIFICATION_REQUIRED: { status: 400, message: 'Give the code that was sent to the e-mail address.' },
  INVALID_CODE: { status: 400, message: 'The code is wrong or has expired; ask for a new one.' },
  EMAIL_ALREADY_EXISTS: { status: 409, message: 'There is an account with this e-mail address.' },
  NAME_ALREADY_EXISTS: { status: 409, message: 'This name is taken; choose another.' },
  SMTP_TIMEOUT: { status: 504, message: 'The mail server did not answer in time; try again in a moment.' },
  SMTP_FAILED: { status: 502, message: 'The mail server did not accept the message; try again later.' },
  INVALID_CREDENTIALS: { status: 401, message: 'The name or the password is wrong.' },
  EMAIL_NOT_VERIFIED: { status: 401, message: 'Confirm your e-mail address first: use the link that was mailed.' },
  ACCOUNT_SUSPENDED: { status: 403, message: 'This account is suspended.' },
  ACCOUNT_CLOSING: { status: 403, message: 'This account is about to be deleted; undo that with DELETE delete first.' },
  INVALID_MFA_TICKET: { status: 401, message: 'The login was not finished in time; start again.' },
  INVALID_MFA_CODE: { status: 401, message: 'The code is wrong, was used before, or is not valid now.' },
  MFA_CHALLENGE_LOCKED: { status: 429, message: 'Too many wrong codes; try again after {retryAt}.' },
  MFA_ALREADY_ENABLED: { status: 400, message: 'The second factor is on; switch it off to enrol another device.' },
  MFA_NOT_ENABLED: { status: 400, message: 'The second factor is not on.' },
  REAUTHENTICATION_REQUIRED: { status: 401, message: 'Confirm it with {fields}.' },
  CREDENTIAL_NOT_FOUND: { status: 404, message: 'There is no such credential; list them at GET credentials.' },
  LAST_CREDENTIAL: {
    status: 409,
    message: 'Nobody could log in to the account without this one; set a password or link a login first.',
  },
  INVALID_PASSKEY: {
    status: 401,
    message: 'The passkey was not accepted; start again, or log in another way.',
  },
  TOO_MANY_PASSKEYS: { status: 409, message: 'There can be {most} passkeys; remove one first.' },
  PASSKEYS_UNAVAILABLE: {
    status: 503,
    message: 'Passkeys need a host name instead of an IP address; the operator sets accounts.public_url.',
  },
  INVALID_EXCHANGE_CODE: {
    status: 401,
    message: 'The exchange code is unknown, was used before, has expired, or is for another browser.',
  },
  INVALID_REFRESH_TOKEN: { status: 401, message: 'The refresh token is not valid; log in again.' },
  INVALID_TOKEN: { status: 400, message: 'The token is wrong, was used before, or has expired.' },
  SESSION_NOT_FOUND: { status: 404, message: 'There is no such session.' },
  NOT_IMPLEMENTED: { status: 501, message: 'Configuration sync is not implemented.' },
  MISSING_TOKEN: { status: 401, message: 'Send the agent’s token: "Authorization: Bearer <token>".' },
  INVALID_AGENT_TOKEN: { status: 401, message: 'The agent’s token is not valid.' },
  EXTERNAL_ID_REQUIRED: { status: 400, message: 'Give the externalId of the subscription.' },
  SUBSCRIPTION_NOT_FOUND: { status: 404, message: 'There is no such subscription.' },
  TOO_MANY_SUBSCRIPTIONS: { status: 409, message: 'You have {most} subscriptions, which is the maximum.' },
  INVALID_SIGNATURE: { status: 401, message: 'X-App-Signature is missing, wrong, or older than five minutes.' },
  VERSION_CONFLICT: {
    status: 409,
    message: 'Someone else changed the matrix; read version {version} and try again.',
  },
  INVALID_ROLE: { status: 400, message: '{reason}' },
  INVALID_MODULE: {
    status: 400,
    message: 'There is no permission "{module}"; names are letters, digits, ".", "_", "-".',
  },
  PERMISSION_NOT_HELD: { status: 403, message: 'You cannot give "{permission}" to anyone: you do not hold it.' },
  INVITATION_REQUIRED: {
    status: 403,
    message: 'Registration is by invitation only; ask an administrator for an invitation.',
  },
  REGISTRATION_CLOSED: { status: 403, message: 'New accounts are not created here; ask an administrator.' },
  DOMAIN_NOT_ALLOWED: { status: 403, message: 'Addresses at "{domain}" cannot register here; ask for an invitation.' },
  INVITATION_NOT_FOUND: {
    status: 404,
    message: 'There is no such invitation; it was accepted or revoked, or it has expired.',
  },
  TEAM_NOT_FOUND: { status: 404, message: 'There is no such team, or you are not in it.' },
  MEMBER_NOT_FOUND: { status: 404, message: 'There is nobody with this id in the team.' },
  TOO_MANY_TEAMS: { status: 409, message: 'One person can be in {most} teams.' },
  CALLBACK_URL_REFUSED: { status: 400, message: 'The url cannot be called: {reason}.' },
  WEBHOOK_NOT_FOUND: { status: 404, message: 'There is no such webhook; list them at GET admin/webhooks.' },
  TOO_MANY_INVITATIONS: { status: 409, message: 'There are {most} open invitations already; revoke one first.' },
  TOO_MANY_WEBHOOKS: { status: 409, message: 'There are {most} webhooks already; remove one first.' },
  INVALID_PLAN: { status: 400, message: 'There is no plan "{plan}"; use one of {plans}.' },
  USER_NOT_FOUND: { status: 404, message: 'There is no such user.' },
  LAST_ADMIN: { status: 409, message: 'This is the last administrator who can log in; make another one first.' },
  ADDRESS_NOT_LISTED: { status: 404, message: 'That address is not on the list.' },
  PROXY_UUID_EXPIRED: { status: 403, message: 'The proxy UUID has expired; ask an administrator to renew it.' },
  AGENT_ID_MISMATCH: { status: 403, message: 'The token belongs to another agent, not to "{given}".' },
  AGENT_EXISTS: { status: 409, message: 'There is a proxy node "{id}" already; revoke it first.' },
  AGENT_NOT_FOUND: { status: 404, message: 'There is no proxy node "{id}".' },
  AGENT_CONFIGURED: { status: 409, message: 'The agent "{id}" has its token in the settings; change it there.' },
  COMPLETIONS_UNAVAILABLE: { status: 503, message: 'The completions service does not run here, so there are no keys.' },
  KEY_NOT_FOUND: { status: 404, message: 'There is no such key.' },
  TOO_MANY_KEYS: { status: 409, message: 'Your plan includes {most} keys; remove one first.' },
  TOKEN_NOT_FOUND: { status: 404, message: 'There is no such token; list them at GET tokens.' },
  TOKEN_LIFETIME_TOO_LONG: {
    status: 400,
    message: 'A token may last {days} days at most here; give a smaller expires_in_days.',
  },
  TOO_MANY_TOKENS: { status: 409, message: 'There are {most} tokens already; revoke one first.' },
  LOGIN_REQUIRED: {
    status: 403,
    message: 'An access token cannot do this; log in, and send the session token or the cookie.',
  },
  AUTHORIZATION_PENDING: { status: 400, message: 'Nobody has approved the code yet; ask again after the interval.' },
  SLOW_DOWN: { status: 400, message: 'Too early; from now on, wait five seconds longer between two requests.' },
  ACCESS_DENIED: { status: 400, message: 'The person denied the request.' },
  EXPIRED_TOKEN: { status: 400, message: 'The device code is unknown, was used or has expired; start again.' },
  INVALID_SCOPE: { status: 400, message: 'A device may ask for {scopes}, separated by spaces.' },
  DEVICE_CODE_NOT_FOUND: {
    status: 404,
    message: 'No device is waiting with this code; check the code, or start again on the device.',
  },
  SERVICE_ACCOUNT_NOT_FOUND: { status: 404, message: 'There is no such service account.' },
  TOO_MANY_SERVICE_ACCOUNTS: { status: 409, message: 'There are {most} service accounts already; remove one first.' },
  SETUP_DONE: { status: 409, message: 'There is an administrator already; ask them, or use: trestle user create.' },
  SETTING_IS_CONFIGURED: {
    status: 409,
    message: '"{name}" is set in the configuration (accounts.{name}); leave it out here, or change it there.',
  },
  PROVIDER_NOT_FOUND: { status: 404, message: 'There is no login with "{provider}" here.' },
} as const satisfies ErrorTable;

/** The codes that this service may answer with. */
export type AccountsErrorCode = keyof typeof accountsErrors;

declare module '../platform/errors/app-error.ts' {
  interface ErrorCodes extends Record<AccountsErrorCode, unknown> {}
}

/** What callers see where our name and theirs differ. */
const OUTSIDE_NAMES: Readonly<Record<string, string>> = {
  // A token that was mailed (400) and that of an agent (401) share one word outside.
  INVALID_AGENT_TOKEN: 'invalid_token',
  PARSE_ERROR: 'invalid_request',
};

/** Details that are members of the answer, beside error, message and requestId. */
const OWN_MEMBERS = ['retryAt', 'version', 'matrix'];

export function accountsErrorBody({ code, message, requestId, details }: ErrorForBody): Record<string, unknown> {
  const body: Record<string, unknown> = { error: OUTSIDE_NAMES[code] ?? code.toLowerCase(), message, requestId };
  for (const name of OWN_MEMBERS) if (details[name] !== undefined) body[name] = details[name];
  if (Array.isArray(details.issues)) body.details = details.issues;
  return body;
}
