import type { LinkedLogin } from '../contract/login.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** The texts of all mail. Nothing that a stranger typed stands in them, except the address they go to. */

export function registrationCodeMail(to: string, code: string): Mail {
  return {
    to,
    subject: 'Your verification code',
    lifetimeMs: 10 * MINUTE_MS,
    text: `Your code is ${code}\n\nIt is valid for ten minutes from when you first asked for it. If you did not ask, ignore this message.\n`,
  };
}

export function accountExistsMail(to: string): Mail {
  return {
    to,
    subject: 'You already have an account',
    lifetimeMs: DAY_MS,
    text: 'Someone, perhaps you, tried to register with this address. You have an account already: log in, or ask for a new password if you forgot it. If it was not you, nothing needs to be done.\n',
  };
}

export function passwordResetMail(to: string, token: string, link: string): Mail {
  return {
    to,
    subject: 'Set a new password',
    lifetimeMs: 15 * MINUTE_MS,
    text: `Someone, perhaps you, asked to set a new password. Within 15 minutes, open\n\n${link}\n\nor give this token: ${token}\n\nIf it was not you, ignore this message: the password stays as it is.\n`,
  };
}

export function setPasswordMail(to: string, token: string, link: string): Mail {
  return {
    to,
    subject: 'An account was created for you',
    lifetimeMs: 3 * DAY_MS,
    text: `An administrator has created an account for this address. Within three days, choose a password at\n\n${link}\n\nor give this token: ${token}\n\nIf you do not know what this is about, ignore this message.\n`,
  };
}

export function invitationMail(to: string, token: string, link: string): Mail {
  return {
    to,
    subject: 'You are invited',
    lifetimeMs: 7 * DAY_MS,
    text: `An administrator invites you to create an account. Within seven days, open\n\n${link}\n\nor give this token: ${token}\n\nIf you do not know what this is about, ignore this message.\n`,
  };
}

export function accountClosingMail(to: string, deletesAt: number): Mail {
  const day = new Date(deletesAt).toISOString().slice(0, 10);
  return {
    to,
    subject: 'Your account will be deleted',
    lifetimeMs: 3 * DAY_MS,
    text: `You asked to delete your account. It is deleted with all its data on ${day} (UTC); its keys do not work from now on. Until then you can log in and undo the deletion.\n\nIf that was not you, log in now, undo it, and set a new password.\n`,
  };
}

/** A change that its owner should know of, in case it was someone else. */
export function securityNoticeMail(to: string, what: string): Mail {
  return {
    to,
    subject: 'A change to your account',
    lifetimeMs: 3 * DAY_MS,
    text: `${what}\n\nIf that was not you, set a new password now and end the sessions that you do not know.\n`,
  };
}

/** Names the accounts elsewhere that can still log in: someone else may have linked one of them. */
export function passwordChangedMail(to: string, links: readonly LinkedLogin[], removedLinks: number): Mail {
  const names = links.map(({ provider, email }) => (email === '' ? provider : `${provider} (${email})`)).join(', ');
  const stay = `These accounts elsewhere can still log in to it: ${names}. Remove those that are not yours.`;
  const removed = `Its ${removedLinks} linked logins were removed.`;
  const details = links.length > 0 ? ` ${stay}` : removedLinks > 0 ? ` ${removed}` : '';
  return securityNoticeMail(to, `The password of your account was changed.${details}`);
}

/** A message to one person, as plain text. `to` has passed the check of addresses: it holds no line break. */
export interface Mail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  /** How long it is worth sending: a code that has ended helps nobody. */
  readonly lifetimeMs: number;
}

/** Resolves when the message is out of our hands; otherwise SMTP_TIMEOUT or SMTP_FAILED. */
export interface Mailer {
  /** `id` tells the same mail, tried again, from another one. */
  send(mail: Mail, id?: string): Promise<void>;
}
