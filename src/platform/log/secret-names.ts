const EXACT: ReadonlySet<string> = new Set(['auth', 'bearer', 'creds', 'jwt', 'otp', 'pass', 'pin', 'pwd', 'sid']);

const WITHIN =
  /authorization|cookie|credential|password|passwd|passphrase|passcode|secret|apikey|accesskey|privatekey|signingkey|encryptionkey|masterkey|otpauth|recoverycode|exchangecode|verificationcode|totpcode|mfacode|mfaticket|tokens?$|xcsession/;

/** Ordinary words elsewhere, but in the query of a URL they carry credentials. */
const IN_A_QUERY: ReadonlySet<string> = new Set([
  'key',
  'sslkey',
  'code',
  'sig',
  'signature',
  'xamzsignature',
  'session',
]);

const CACHED_NAMES = 2000;
const known = new Map<string, boolean>();

/** Whether a member, header or parameter of this name holds a secret; `api_key`, `X-Api-Key` and `apiKey` are one name. */
export function isSecretName(name: string): boolean {
  const cached = known.get(name);
  if (cached !== undefined) return cached;
  const plain = plainName(name);
  const secret = EXACT.has(plain) || WITHIN.test(plain);
  if (known.size >= CACHED_NAMES) known.clear();
  known.set(name, secret);
  return secret;
}

/** As `isSecretName`, for a parameter in the query of a URL. */
export function isSecretParameter(name: string): boolean {
  return isSecretName(name) || IN_A_QUERY.has(plainName(name));
}

/** `max_tokens: 100`: a number under a plural is a count, not a secret. */
export function isCount(name: string, value: unknown): boolean {
  const numeric = typeof value === 'number' || (typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value));
  return numeric && /tokens$/i.test(name);
}

function plainName(name: string): string {
  return name
    .slice(0, 200)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, '');
}
