/** All mails in English. Paragraphs; `{name}` is filled in, and a paragraph that is `{link}` alone becomes a button. */
export const en = {
  registrationCode: {
    subject: 'Your verification code',
    text: [
      'Your code is {code}',
      'It is valid for ten minutes from when you first asked for it. If you did not ask, ignore this message.',
    ],
  },
  accountExists: {
    subject: 'You already have an account',
    text: [
      'Someone, perhaps you, tried to use this address for an account. You have an account already: log in, or ask for a new password if you forgot it. If it was not you, nothing needs to be done.',
    ],
  },
  passwordReset: {
    subject: 'Set a new password',
    text: [
      'Someone, perhaps you, asked to set a new password. Within 15 minutes, open',
      '{link}',
      'or give this token: {token}',
      'If it was not you, ignore this message: the password stays as it is.',
    ],
  },
  setPassword: {
    subject: 'An account was created for you',
    text: [
      'An administrator has created an account for this address. Within three days, choose a password at',
      '{link}',
      'or give this token: {token}',
      'If you do not know what this is about, ignore this message.',
    ],
  },
  invitation: {
    subject: 'You are invited',
    text: [
      'An administrator invites you to create an account. Within seven days, open',
      '{link}',
      'or give this token: {token}',
      'If you do not know what this is about, ignore this message.',
    ],
  },
  accountClosing: {
    subject: 'Your account will be deleted',
    text: [
      'You asked to delete your account. It is deleted with all its data on {day} (UTC); its keys do not work from now on. Until then you can log in and undo the deletion.',
      'If that was not you, log in now, undo it, and set a new password.',
    ],
  },
  webhookDisabled: {
    subject: 'A webhook was switched off',
    text: [
      'The webhook to {host} was switched off, because no delivery has succeeded for three days. Events are no longer sent there.',
      'Its deliveries show what went wrong. Fix the receiver, then switch the webhook on again.',
    ],
  },
  /** A change that its owner should know of, in case it was someone else: one of the notices below. */
  notice: {
    subject: 'A change to your account',
    text: ['{notice}', 'If that was not you, set a new password now and end the sessions that you do not know.'],
  },
  notices: {
    oauthLinked: 'An account from elsewhere can now log in to your account.',
    passwordRemoved: 'The password was removed from your account.',
    passkeyRemoved: 'The passkey "{name}" was removed from your account.',
    linkRemoved: 'The login with {provider} was removed from your account.',
    tokenCreated: 'The access token "{name}" was created for your account. It is good for: {scopes}.',
    passkeyAdded: 'A passkey was added to your account.',
    mfaEnabled: 'The second factor of your account was switched on.',
    mfaDisabled: 'The second factor of your account was switched off.',
    mfaReset: 'An administrator has removed the second factor of your account.',
    recoveryCodesRenewed: 'New recovery codes were created for your account; the old ones do not work any more.',
    accountKept: 'Your account stays: its deletion was undone.',
    emailChanged: 'The e-mail address of your account was changed. Mails go to the new address from now on.',
    teamMember: 'You are now a member of the team "{team}".',
    teamOwner: 'You are now an owner of the team "{team}".',
    teamLeft: 'You are no longer in the team "{team}".',
    passwordChanged: 'The password of your account was changed.',
    passwordChangedLinksStay:
      'The password of your account was changed. These accounts elsewhere and passkeys can still log in to it: {links}. Remove those that are not yours.',
    passwordChangedLinksRemoved: 'The password of your account was changed. Its {count} linked logins were removed.',
  },
};

export interface MailText {
  readonly subject: string;
  readonly text: readonly string[];
}

/** What a file of another language has to hold. */
export type MailTexts = { readonly [Name in Exclude<keyof typeof en, 'notices'>]: MailText } & {
  readonly notices: { readonly [Name in keyof (typeof en)['notices']]: string };
};
