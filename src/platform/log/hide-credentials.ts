import { REDACTED } from './known-secrets.ts';
import { isCount, isSecretName, isSecretParameter } from './secret-names.ts';

const SCHEMES = /\b(bearer|basic)(\s{1,4})[^\s"'\\,;]{4,}/gi;
const HEADERS = /\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*["']?\s{0,3}[:=]\s{0,3}\\*["']?)[^\r\n"'\\]+/gi;
/** Keys whose maker gave them a prefix to be found by: ours, and those of the model APIs and forges. */
const SHAPES =
  /(?<![A-Za-z0-9])(tsk_|sk-|sk_|gsk_|xai-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_)[\w-]{8,}/g;
const WEB_TOKENS = /(?<![\w-])eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?/g;
const USER_INFO = /([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#"'<>\\]{1,1000}@/gi;
const NAMED = /(?<![\w.%-])([A-Za-z_][\w.%-]{1,63})(\\*["']?\s{0,3}[:=]\s{0,3})/g;
const QUOTED_VALUE = /(\\*["'])(.*?)(?:\1|$)/sy;
const PLAIN_VALUE = /[^\s,;&"'\\}\])]+/y;

/** Takes what looks like a credential out of free text, whoever it belongs to. What is left still reads. */
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
    if (!(inQuery ? isSecretParameter(decodeName(name)) : isSecretName(name))) continue;
    const value = valueAt(text, NAMED.lastIndex);
    if (value === undefined || isCount(name, value.text)) continue;
    hidden += text.slice(copied, value.start) + REDACTED;
    copied = value.start + value.text.length;
    NAMED.lastIndex = copied;
  }
  return copied === 0 ? text : hidden + text.slice(copied);
}

function valueAt(text: string, index: number): { readonly start: number; readonly text: string } | undefined {
  QUOTED_VALUE.lastIndex = index;
  const quoted = QUOTED_VALUE.exec(text);
  if (quoted !== null) return { start: index + (quoted[1]?.length ?? 0), text: quoted[2] ?? '' };
  PLAIN_VALUE.lastIndex = index;
  const plain = PLAIN_VALUE.exec(text);
  return plain === null ? undefined : { start: index, text: plain[0] };
}

function decodeName(name: string): string {
  return name.replaceAll(/%([0-7][0-9a-f])/gi, (_whole, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}
