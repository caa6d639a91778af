export const REDACTED = '[redacted]';

/** Shorter values occur in ordinary words and numbers. */
const MIN_LENGTH = 6;

/** Replaces the secrets of the configuration in texts: in plain text, base64 and hex, and as JSON and URLs encode them. */
export interface KnownSecrets {
  hide(text: string): string;
  /** The longest text that one hidden secret may take: where a text is cut, so much more of it must be looked at. */
  readonly longest: number;
}

export function createKnownSecrets(secrets: readonly string[], instead = REDACTED): KnownSecrets {
  const forms = [...new Set(secrets.flatMap((secret) => [secret, secret.trim()]).flatMap(formsOf))];
  if (forms.length === 0) return { hide: (text) => text, longest: 0 };
  return { hide: createHider(forms, instead), longest: Math.max(...forms.map((form) => form.length)) };
}

function formsOf(secret: string): readonly string[] {
  if (secret.length < MIN_LENGTH) return [];
  const bytes = Buffer.from(secret, 'utf8');
  const hex = bytes.toString('hex');
  const json = inJson(secret);
  return [secret, hex, hex.toUpperCase(), ...base64Forms(bytes), json, inJson(json), ...[secret, json].flatMap(inUrls)];
}

function inJson(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** Returns the forms of the usual encoders, which escape different characters; each with upper and lower case hex digits. */
function inUrls(text: string): readonly string[] {
  const encoded = encodeURIComponent(text.toWellFormed());
  const strict = encoded.replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  const form = new URLSearchParams([['', text]]).toString().slice(1);
  const forms = [encoded, encoded.replaceAll("'", '%27'), strict, encodeURI(text.toWellFormed()), form];
  return forms.flatMap((one) => [one, one.replaceAll(/%../g, (code) => code.toLowerCase())]);
}

/** Base64 looks different at each of three offsets; only the characters that the secret alone decides are compared. */
function base64Forms(bytes: Buffer): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64');
    const start = Math.ceil((offset * 8) / 6);
    const end = Math.floor(((offset + bytes.length) * 8) / 6);
    const form = encoded.slice(start, end);
    return [form, form.replaceAll('+', '-').replaceAll('/', '_')];
  });
}

/** Searches in one pass: a table of the first two characters of each form selects the places to compare. */
function createHider(forms: readonly string[], instead: string): (text: string) => string {
  const starts = Map.groupBy(forms, (form) => slotAt(form, 0));
  const maybe = new Uint8Array(0x1_0000);
  for (const slot of starts.keys()) maybe[slot] = 1;

  return (text) => {
    let hidden = '';
    let end = -1;
    for (let index = 0; index < text.length - 1; index += 1) {
      const slot = slotAt(text, index);
      if (maybe[slot] !== 1) continue;
      for (const form of starts.get(slot) ?? []) {
        if (!text.startsWith(form, index)) continue;
        // Overlapping secrets become one replacement, so that no part of one remains.
        if (index > end) hidden += text.slice(Math.max(end, 0), index) + instead;
        end = Math.max(end, index + form.length);
      }
    }
    return end === -1 ? text : hidden + text.slice(end);
  };
}

function slotAt(text: string, index: number): number {
  return (text.charCodeAt(index) * 31 + text.charCodeAt(index + 1)) & 0xffff;
}

const SCHEMES = /\b(bearer|basic)(\s{1,4})[^\s"'\\,;]{4,}/gi;
const HEADERS = /\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*["']?\s{0,3}[:=]\s{0,3}\\*["']?)[^\r\n"'\\]+/gi;
/** Keys with a known prefix: those of Trestle, of model APIs and of forges. */
const SHAPES =
  /(?<![A-Za-z0-9])(tsk_|tpt_|trk_|agt_|whs_|sk-|sk_|gsk_|xai-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[\w-]{8,}/g;
const WEB_TOKENS = /(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?/g;
const USER_INFO = /([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#"'<>\\]{1,1000}@/gi;
const NAMED = /(?<![\w.%-])([A-Za-z_][\w.%-]{1,63})(\\*["']?\s{0,3}[:=]\s{0,3})/g;
/** A value in quotes, which may be escaped, or up to the next character that ends a value. */
const VALUE = /(\\*["'])(.*?)(?:\1|$)|[^\s,;&"'\\}\])]+/sy;

/** Replaces text that has the form of a credential, whether or not it is in the configuration. The rest stays readable. */
export function hideCredentials(text: string): string {
  let hidden = text;
  if (hidden.includes('://')) hidden = hidden.replaceAll(USER_INFO, `$1${REDACTED}@`);
  hidden = hidden
    .replaceAll(SHAPES, `$1${REDACTED}`)
    .replaceAll(WEB_TOKENS, REDACTED)
    .replaceAll(SCHEMES, `$1$2${REDACTED}`);
  if (!hidden.includes(':') && !hidden.includes('=')) return hidden;
  return hideNamed(hidden.replaceAll(HEADERS, `$1$2${REDACTED}`));
}

/** `password=...`, `"api_key": "..."`, `?access_token=...`: the name says that the value is a secret. */
function hideNamed(text: string): string {
  let hidden = '';
  let copied = 0;
  NAMED.lastIndex = 0;
  for (let match = NAMED.exec(text); match !== null; match = NAMED.exec(text)) {
    const name = match[1] ?? '';
    const before = text.charAt(match.index - 1);
    const inQuery = before === '?' || before === '&';
    if (!(inQuery ? isSecretParameter(name) : isSecretName(name))) continue;
    VALUE.lastIndex = NAMED.lastIndex;
    const [whole = '', quote = '', value = whole] = VALUE.exec(text) ?? [];
    if (whole === '' || isCount(name, value)) continue;
    const start = NAMED.lastIndex + quote.length;
    hidden += text.slice(copied, start) + REDACTED;
    copied = start + value.length;
    NAMED.lastIndex = copied;
  }
  return copied === 0 ? text : hidden + text.slice(copied);
}

const SECRET_NAME =
  /^(?:auth|bearer|creds|jwt|otp|pass|pin|pwd|sid)$|authorization|cookie|credential|password|passwd|passphrase|passcode|secret|apikey|accesskey|privatekey|signingkey|encryptionkey|masterkey|otpauth|recoverycode|exchangecode|verificationcode|totpcode|mfacode|mfaticket|tokens?$|xcsession/;
/** Ordinary words elsewhere, but in the query of a URL they carry credentials. */
const SECRET_IN_A_QUERY = /^(?:key|sslkey|code|sig|signature|xamzsignature|session)$/;

const CACHED_NAMES = 2000;
const known = new Map<string, boolean>();

/** Whether a member, header or parameter of this name holds a secret; `api_key`, `X-Api-Key` and `apiKey` are one name. */
export function isSecretName(name: string): boolean {
  const cached = known.get(name);
  if (cached !== undefined) return cached;
  const secret = SECRET_NAME.test(plainName(name));
  if (known.size >= CACHED_NAMES) known.clear();
  known.set(name, secret);
  return secret;
}

/** As `isSecretName`, for a parameter in the query of a URL. */
export function isSecretParameter(name: string): boolean {
  return isSecretName(name) || SECRET_IN_A_QUERY.test(plainName(name));
}

/** `max_tokens: 100`: a number under a plural is a count, not a secret. */
export function isCount(name: string, value: unknown): boolean {
  const numeric = typeof value === 'number' || (typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value));
  return numeric && /tokens$/i.test(name);
}

function plainName(name: string): string {
  return name
    .slice(0, 200)
    .replaceAll(/%([0-7][0-9a-f])/gi, (_whole, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, '');
}
