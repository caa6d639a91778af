export const REDACTED = '[redacted]';

/** Shorter values would be found in ordinary words and numbers. */
const LEAST_LENGTH = 6;
/** An encoded text inside an encoded text inside an encoded text. */
const DECODING_ROUNDS = 3;
const MOST_ENCODINGS = 6;

/** Takes the secrets that the program itself was given out of texts, however they are encoded there. */
export interface KnownSecrets {
  hide(text: string): string;
  /** The longest text that one hidden secret may take: where a text is cut, so much more of it must be looked at. */
  readonly longest: number;
}

export function createKnownSecrets(secrets: readonly string[]): KnownSecrets {
  const forms = new Set(secrets.flatMap((secret) => [secret, secret.trim()]).flatMap(formsOf));
  if (forms.size === 0) return { hide: (text) => text, longest: 0 };
  const hidePlain = createHider([...forms]);
  const longest = 12 * Math.max(...[...forms].map((form) => form.length));
  return {
    longest,
    hide(text) {
      const hidden = hidePlain(text);
      return hidden.includes('%') || hidden.includes('\\') ? hideEncoded(hidden, hidePlain) : hidden;
    },
  };
}

/**
 * Percent signs and backslashes can spell one secret in many ways, so it is the decoded text that is searched.
 * When a secret shows up there, the decoded text (without it) is what remains.
 */
function hideEncoded(text: string, hidePlain: (text: string) => string): string {
  let kept = text;
  for (let found = 0; found < MOST_ENCODINGS; found += 1) {
    const hidden = hideInDecoded(kept, hidePlain);
    if (hidden === undefined) return kept;
    kept = hidden;
  }
  return REDACTED;
}

/** The first decoded form of the text that has a secret in it, without the secret; undefined when none has. */
function hideInDecoded(text: string, hidePlain: (text: string) => string): string | undefined {
  const seen = new Set([text]);
  let forms = [text];
  for (let round = 0; round < DECODING_ROUNDS; round += 1) {
    const decoded: string[] = [];
    for (const form of forms) {
      for (const decode of DECODERS) {
        const candidate = decode(form);
        if (seen.has(candidate)) continue;
        const hidden = hidePlain(candidate);
        if (hidden !== candidate) return hidden;
        seen.add(candidate);
        decoded.push(candidate);
      }
    }
    forms = decoded;
  }
  return undefined;
}

function formsOf(secret: string): string[] {
  if (secret.length < LEAST_LENGTH) return [];
  const bytes = Buffer.from(secret, 'utf8');
  const hex = bytes.toString('hex');
  return [secret, hex, hex.toUpperCase(), ...base64Forms(bytes)];
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

/** One pass over the text: a table of the forms' first two characters says where a closer look is needed. */
function createHider(forms: readonly string[]): (text: string) => string {
  const starts = new Map<number, string[]>();
  const maybe = new Uint8Array(0x1_0000);
  for (const form of forms) {
    const slot = slotAt(form, 0);
    maybe[slot] = 1;
    starts.set(slot, [...(starts.get(slot) ?? []), form]);
  }

  const longestAt = (text: string, index: number): number => {
    let longest = 0;
    for (const form of starts.get(slotAt(text, index)) ?? []) {
      if (form.length > longest && text.startsWith(form, index)) longest = form.length;
    }
    return longest;
  };

  return (text) => {
    let hidden = '';
    let copied = 0;
    let end = -1;
    for (let index = 0; index < text.length - 1; index += 1) {
      if (maybe[slotAt(text, index)] !== 1) continue;
      const length = longestAt(text, index);
      if (length === 0) continue;
      // Secrets that overlap become one gap: no half of one is left standing.
      if (index > end) {
        hidden += text.slice(copied, index) + REDACTED;
      }
      end = Math.max(end, index + length);
      copied = end;
    }
    return end === -1 ? text : hidden + text.slice(copied);
  };
}

function slotAt(text: string, index: number): number {
  return (text.charCodeAt(index) * 31 + text.charCodeAt(index + 1)) & 0xffff;
}

function decodePercent(text: string): string {
  if (!text.includes('%')) return text;
  return text.replaceAll(/(?:%[0-9a-f]{2})+/gi, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString('utf8'));
}

function decodeForm(text: string): string {
  return text.includes('%') ? decodePercent(text.replaceAll('+', ' ')) : text;
}

const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

function decodeEscapes(text: string): string {
  if (!text.includes('\\')) return text;
  return text.replaceAll(/\\(?:u([0-9a-f]{4})|(.))/gis, (_whole, code: string | undefined, letter: string) =>
    code === undefined ? (ESCAPES[letter] ?? letter) : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

const DECODERS: readonly ((text: string) => string)[] = [decodePercent, decodeForm, decodeEscapes];
