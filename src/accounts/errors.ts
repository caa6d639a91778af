import { type ErrorTable, platformErrors } from '../platform/errors/error-table.ts';
import type { ErrorForBody } from '../platform/http/surface.ts';

/** Every error of accounts. Callers see the codes in lower case. */
export const accountsErrors = {
  ...platformErrors,
  CREDENTIALS_IN_QUERY: { status: 400, message: 'Send "{name}" in the body or a header, not in the URL.' },
  SESSION_TOKEN_REQUIRED: { status: 401, message: 'Log in first: send the session token as a bearer token or cookie.' },
  PROXY_NODES_OFF: { status: 404, message: 'Proxy nodes are switched off; set accounts.proxy_nodes to true.' },
  INVALID_SESSION: { status: 401, message: 'The session has ended; log in again.' },
  READ_ONLY_ACCOUNT: { status: 403, message: 'This account is read-only: it cannot change anything.' },
  RATE_LIMITED: { status: 429, message: 'Too many requests; try again in {retryAfterSeconds} seconds.' },
  INVALID_EMAIL: { status: 400, message: 'This e-mail address is not valid, or is not accepted here.' },
  NAME_REQUIRED: { status: 400, message: 'Give a name of 1 to 64 characters, without "@" or control characters.' },
  MISSING_CREDENTIALS: { status: 400, message: 'Give {fields}.' },
  PASSWORD_TOO_SHORT: { status: 400, message: 'The password needs at least {least} characters.' },
  PASSWORD_TOO_LONG: { status: 400, message: 'The password can have at most {most} characters.' },
  PASSWORD_TOO_COMMON: { status: 400, message: 'This password is too common; choose another one.' },
  PASSWORD_CONTAINS_IDENTITY: { status: 400, message: 'The password must not contain your name or e-mail address.' },
  VERIFICATION_REQUIRED: { status: 400, message: 'Enter the code that was sent to the e-mail address.' },
  INVALID_CODE: { status: 400, message: 'The code is wrong or has expired; request a new one.' },
  EMAIL_ALREADY_EXISTS: { status: 409, message: 'An account with this e-mail address already exists.' },
  NAME_ALREADY_EXISTS: { status: 409, message: 'This name is already taken; choose another one.' },
  SMTP_TIMEOUT: { status: 504, message: 'The mail server did not answer in time; try again in a moment.' },
  SMTP_FAILED: { status: 502, message: 'The mail server did not accept the message; try again later.' },
  INVALID_CREDENTIALS: { status: 401, message: 'The name or the password is wrong.' },
  EMAIL_NOT_VERIFIED: {
    status: 401,
    message: 'Confirm your e-mail address first: open the link in the e-mail you received.',
  },
  ACCOUNT_SUSPENDED: { status: 403, message: 'This account is suspended.' },
  ACCOUNT_CLOSING: {
    status: 403,
    message: 'This account is scheduled for deletion; cancel that with DELETE delete first.',
  },
  INVALID_MFA_TICKET: { status: 401, message: 'The login was not finished in time; start again.' },
  INVALID_MFA_CODE: {
    status: 401,
    message: 'The code is wrong, was already used, or is not valid now; enter a new one.',
  },
  MFA_CHALLENGE_LOCKED: { status: 429, message: 'Too many wrong codes; try again after {retryAt}.' },
  MFA_ALREADY_ENABLED: {
    status: 400,
    message: 'The second factor is already on; switch it off to enrol another device.',
  },
  MFA_NOT_ENABLED: { status: 400, message: 'The second factor is not switched on.' },
  REAUTHENTICATION_REQUIRED: { status: 401, message: 'Confirm this with {fields}.' },
  CREDENTIAL_NOT_FOUND: { status: 404, message: 'There is no such credential; GET credentials lists yours.' },
  LAST_CREDENTIAL: {
    status: 409,
    message: 'This is the only way to log in to the account; set a password or link a login first.',
  },
  INVALID_PASSKEY: {
    status: 401,
    message: 'The passkey was not accepted; try again, or log in another way.',
  },
  TOO_MANY_PASSKEYS: { status: 409, message: 'An account can have at most {most} passkeys; remove one first.' },
  PASSKEYS_UNAVAILABLE: {
    status: 503,
    message: 'Passkeys need a host name, not an IP address; ask the operator to set accounts.public_url.',
  },
  INVALID_EXCHANGE_CODE: {
    status: 401,
    message: 'The exchange code is unknown, expired, already used, or for another browser; log in again.',
  },
  INVALID_REFRESH_TOKEN: { status: 401, message: 'The refresh token is not valid; log in again.' },
  INVALID_TOKEN: { status: 400, message: 'The token is wrong, expired or already used; request a new one.' },
  SESSION_NOT_FOUND: { status: 404, message: 'There is no such session.' },
  NOT_IMPLEMENTED: { status: 501, message: 'Configuration sync is not implemented.' },
  MISSING_TOKEN: { status: 401, message: 'Send the token of the proxy node: "Authorization: Bearer <token>".' },
  INVALID_AGENT_TOKEN: { status: 401, message: 'The token of the proxy node is not valid.' },
  EXTERNAL_ID_REQUIRED: { status: 400, message: 'Give the externalId of the subscription.' },
  SUBSCRIPTION_NOT_FOUND: { status: 404, message: 'There is no such subscription.' },
  TOO_MANY_SUBSCRIPTIONS: {
    status: 409,
    message: 'You already have {most} subscriptions, the maximum; remove one first.',
  },
  INVALID_SIGNATURE: { status: 401, message: 'X-App-Signature is missing, wrong, or older than five minutes.' },
  VERSION_CONFLICT: {
    status: 409,
    message: 'Someone else changed the matrix; read version {version} and try again.',
  },
  INVALID_ROLE: { status: 400, message: '{reason}' },
  INVALID_MODULE: {
    status: 400,
    message: 'There is no permission "{module}"; names consist of letters, digits, ".", "_" and "-".',
  },
  PERMISSION_NOT_HELD: {
    status: 403,
    message: 'You cannot grant "{permission}", because you do not hold it yourself.',
  },
  INVITATION_REQUIRED: {
    status: 403,
    message: 'Registration is by invitation only; ask an administrator for an invitation.',
  },
  REGISTRATION_CLOSED: { status: 403, message: 'Registration is closed; ask an administrator for an account.' },
  DOMAIN_NOT_ALLOWED: { status: 403, message: 'Addresses at "{domain}" cannot register here; ask for an invitation.' },
  INVITATION_NOT_FOUND: {
    status: 404,
    message: 'There is no such invitation; it may have expired, or been accepted or revoked.',
  },
  TEAM_NOT_FOUND: { status: 404, message: 'There is no such team, or you are not a member of it.' },
  MEMBER_NOT_FOUND: { status: 404, message: 'The team has no member with this id.' },
  TOO_MANY_TEAMS: { status: 409, message: 'A user can be in at most {most} teams; leave one first.' },
  CALLBACK_URL_REFUSED: { status: 400, message: 'The url cannot be called: {reason}.' },
  WEBHOOK_NOT_FOUND: { status: 404, message: 'There is no such webhook; GET admin/webhooks lists them.' },
  TOO_MANY_INVITATIONS: { status: 409, message: 'There are already {most} open invitations; revoke one first.' },
  TOO_MANY_WEBHOOKS: { status: 409, message: 'There are already {most} webhooks; remove one first.' },
  INVALID_PLAN: { status: 400, message: 'There is no plan "{plan}"; use one of {plans}.' },
  USER_NOT_FOUND: { status: 404, message: 'There is no such user.' },
  LAST_ADMIN: {
    status: 409,
    message: 'This is the last administrator who can log in; make another user an administrator first.',
  },
  ADDRESS_NOT_LISTED: { status: 404, message: 'This address is not on the list.' },
  PROXY_UUID_EXPIRED: { status: 403, message: 'The proxy UUID has expired; ask an administrator to renew it.' },
  AGENT_ID_MISMATCH: { status: 403, message: 'The token belongs to another proxy node, not to "{given}".' },
  AGENT_EXISTS: { status: 409, message: 'The proxy node "{id}" already exists; revoke it first.' },
  AGENT_NOT_FOUND: { status: 404, message: 'There is no proxy node "{id}".' },
  AGENT_CONFIGURED: {
    status: 409,
    message: 'The token of the proxy node "{id}" is set in the configuration; change it there.',
  },
  COMPLETIONS_UNAVAILABLE: {
    status: 503,
    message: 'This server does not run the completions service, so it has no keys.',
  },
  KEY_NOT_FOUND: { status: 404, message: 'There is no such key.' },
  TOO_MANY_KEYS: { status: 409, message: 'Your plan includes {most} keys; remove one first.' },
  TOKEN_NOT_FOUND: { status: 404, message: 'There is no such token; GET tokens lists yours.' },
  TOKEN_LIFETIME_TOO_LONG: {
    status: 400,
    message: 'A token can be valid for at most {days} days here; send a smaller expires_in_days.',
  },
  TOO_MANY_TOKENS: { status: 409, message: 'You already have {most} tokens; revoke one first.' },
  LOGIN_REQUIRED: {
    status: 403,
    message: 'An access token is not enough for this; log in, and send the session token or cookie.',
  },
  AUTHORIZATION_PENDING: { status: 400, message: 'The code has not been approved yet; ask again after the interval.' },
  SLOW_DOWN: { status: 400, message: 'Polling too fast; from now on, wait five seconds longer between requests.' },
  ACCESS_DENIED: { status: 400, message: 'The request was denied.' },
  EXPIRED_TOKEN: { status: 400, message: 'The device code is unknown, expired or already used; start again.' },
  INVALID_SCOPE: { status: 400, message: 'A device can request {scopes}, separated by spaces.' },
  DEVICE_CODE_NOT_FOUND: {
    status: 404,
    message: 'No device is waiting for this code; check the code, or start again on the device.',
  },
  SERVICE_ACCOUNT_NOT_FOUND: { status: 404, message: 'There is no such service account.' },
  TOO_MANY_SERVICE_ACCOUNTS: { status: 409, message: 'There are already {most} service accounts; remove one first.' },
  SETUP_DONE: {
    status: 409,
    message: 'This server already has an administrator; ask them, or use: trestle user create.',
  },
  SETTING_IS_CONFIGURED: {
    status: 409,
    message: '"{name}" is set in the configuration (accounts.{name}); omit it here, or change it there.',
  },
  PROVIDER_NOT_FOUND: { status: 404, message: 'Login with "{provider}" is not set up on this server.' },
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
