import type { LinkedLogin } from '../contract/login.ts';
import { de, en, type MailTexts, zh } from './message-texts.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** The languages that mails are written in: one file of texts for each. */
const TEXTS = { en, de, zh } as const satisfies Readonly<Record<string, MailTexts>>;
export type MailLanguage = keyof typeof TEXTS;
export type NoticeName = keyof MailTexts['notices'];
type MailName = Exclude<keyof MailTexts, 'notices'>;
type Values = Readonly<Record<string, string>>;

/**
 * A message to one person: which one, and what is filled in. Its text is made when it is sent. `to` has passed the check of
 * addresses: it holds no line break. Nothing that a stranger typed is filled in.
 */
export interface Mail {
  readonly to: string;
  readonly name: MailName;
  readonly notice?: NoticeName;
  readonly values: Values;
  /** How long it is retried: an expired code is of no use. */
  readonly lifetimeMs: number;
}

/** A mail as it leaves: subject, text, and the same text as HTML. */
export interface RenderedMail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html: string;
}

/** Resolves when the message is out of our hands; otherwise SMTP_TIMEOUT or SMTP_FAILED. */
export interface Mailer {
  /** `id` is the same for every try of one mail. */
  send(mail: RenderedMail, id?: string): Promise<void>;
}

export function registrationCodeMail(to: string, code: string): Mail {
  return { to, name: 'registrationCode', values: { code }, lifetimeMs: 10 * MINUTE_MS };
}

export function accountExistsMail(to: string): Mail {
  return { to, name: 'accountExists', values: {}, lifetimeMs: DAY_MS };
}

export function passwordResetMail(to: string, token: string, link: string): Mail {
  return { to, name: 'passwordReset', values: { token, link }, lifetimeMs: 15 * MINUTE_MS };
}

export function setPasswordMail(to: string, token: string, link: string): Mail {
  return { to, name: 'setPassword', values: { token, link }, lifetimeMs: 3 * DAY_MS };
}

export function invitationMail(to: string, token: string, link: string): Mail {
  return { to, name: 'invitation', values: { token, link }, lifetimeMs: 7 * DAY_MS };
}

export function accountClosingMail(to: string, deletesAt: number): Mail {
  const day = new Date(deletesAt).toISOString().slice(0, 10);
  return { to, name: 'accountClosing', values: { day }, lifetimeMs: 3 * DAY_MS };
}

export function webhookDisabledMail(to: string, host: string): Mail {
  return { to, name: 'webhookDisabled', values: { host }, lifetimeMs: 3 * DAY_MS };
}

/** A change that its owner should know of, in case it was someone else. */
export function securityNoticeMail(to: string, notice: NoticeName, values: Values = {}): Mail {
  return { to, name: 'notice', notice, values, lifetimeMs: 3 * DAY_MS };
}

/** Names the accounts elsewhere and passkeys that can still log in: someone else may have added one of them. */
export function passwordChangedMail(to: string, links: readonly LinkedLogin[], removedLinks: number): Mail {
  const names = links
    .map(({ provider, email, name = '' }) => (email + name === '' ? provider : `${provider} (${email}${name})`))
    .join(', ');
  if (links.length > 0) return securityNoticeMail(to, 'passwordChangedLinksStay', { links: names });
  if (removedLinks > 0) return securityNoticeMail(to, 'passwordChangedLinksRemoved', { count: String(removedLinks) });
  return securityNoticeMail(to, 'passwordChanged');
}

/** Writes a mail in a language, as text and as HTML that loads nothing from anywhere. */
export function renderMail({ to, name, notice, values }: Mail, language: MailLanguage): RenderedMail {
  const texts: MailTexts = TEXTS[language];
  const { subject, text } = texts[name];
  const paragraphs = text.map((part) =>
    notice === undefined ? part : part.replace('{notice}', () => texts.notices[notice]),
  );
  const plain = (part: string) => filled(part, (value) => values[value] ?? '');
  const body = paragraphs.map((part) => `<p style="margin:0 0 16px">${htmlOf(part, values)}</p>`).join('\n');
  return {
    to,
    subject,
    text: `${paragraphs.map(plain).join('\n\n')}\n`,
    html: `<!doctype html>
<html lang="${language}">
<head><meta charset="utf-8"><title>${escaped(subject)}</title></head>
<body style="margin:0;padding:24px;font:16px/1.5 sans-serif;color:#1a1a1a;background:#ffffff">
<div style="max-width:560px">
<h1 style="font-size:20px;margin:0 0 16px">${escaped(subject)}</h1>
${body}
</div>
</body>
</html>
`,
  };
}

const STRONG = 'font:600 18px monospace;letter-spacing:1px;word-break:break-all';
const BUTTON = 'color:#0b57d0;word-break:break-all';

/** What is filled in is marked, so that it can be found and copied. */
function htmlOf(paragraph: string, values: Values): string {
  return filled(escaped(paragraph), (name) => {
    const value = escaped(values[name] ?? '');
    if (name === 'link') return `<a href="${value}" style="${BUTTON}">${value}</a>`;
    return name === 'code' || name === 'token' ? `<strong style="${STRONG}">${value}</strong>` : value;
  });
}

function filled(text: string, fill: (name: string) => string): string {
  return text.replaceAll(/\{(\w+)\}/g, (_, name: string) => fill(name));
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (sign) => ESCAPES[sign] ?? sign);
}
