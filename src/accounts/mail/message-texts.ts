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

interface MailText {
  readonly subject: string;
  readonly text: readonly string[];
}

/** What a file of another language has to hold. */
export type MailTexts = { readonly [Name in Exclude<keyof typeof en, 'notices'>]: MailText } & {
  readonly notices: { readonly [Name in keyof (typeof en)['notices']]: string };
};

/** All mails in German. */
export const de: MailTexts = {
  registrationCode: {
    subject: 'Ihr Bestätigungscode',
    text: [
      'Ihr Code lautet {code}',
      'Er gilt zehn Minuten ab der ersten Anforderung. Wenn Sie keinen Code angefordert haben, ignorieren Sie diese Nachricht.',
    ],
  },
  accountExists: {
    subject: 'Sie haben bereits ein Konto',
    text: [
      'Jemand, vielleicht Sie selbst, wollte diese Adresse für ein Konto verwenden. Sie haben bereits ein Konto: Melden Sie sich an, oder fordern Sie ein neues Passwort an, falls Sie es vergessen haben. Wenn Sie es nicht waren, müssen Sie nichts tun.',
    ],
  },
  passwordReset: {
    subject: 'Neues Passwort festlegen',
    text: [
      'Jemand, vielleicht Sie selbst, möchte ein neues Passwort festlegen. Öffnen Sie innerhalb von 15 Minuten',
      '{link}',
      'oder geben Sie dieses Token an: {token}',
      'Wenn Sie es nicht waren, ignorieren Sie diese Nachricht: Das Passwort bleibt unverändert.',
    ],
  },
  setPassword: {
    subject: 'Für Sie wurde ein Konto angelegt',
    text: [
      'Eine Administratorin oder ein Administrator hat für diese Adresse ein Konto angelegt. Wählen Sie innerhalb von drei Tagen ein Passwort:',
      '{link}',
      'oder geben Sie dieses Token an: {token}',
      'Wenn Sie damit nichts anfangen können, ignorieren Sie diese Nachricht.',
    ],
  },
  invitation: {
    subject: 'Sie sind eingeladen',
    text: [
      'Sie sind eingeladen, ein Konto anzulegen. Öffnen Sie innerhalb von sieben Tagen',
      '{link}',
      'oder geben Sie dieses Token an: {token}',
      'Wenn Sie damit nichts anfangen können, ignorieren Sie diese Nachricht.',
    ],
  },
  accountClosing: {
    subject: 'Ihr Konto wird gelöscht',
    text: [
      'Sie haben die Löschung Ihres Kontos beantragt. Es wird am {day} (UTC) mit allen Daten gelöscht; seine Schlüssel funktionieren ab sofort nicht mehr. Bis dahin können Sie sich anmelden und die Löschung rückgängig machen.',
      'Wenn Sie das nicht waren, melden Sie sich jetzt an, machen Sie die Löschung rückgängig, und legen Sie ein neues Passwort fest.',
    ],
  },
  webhookDisabled: {
    subject: 'Ein Webhook wurde abgeschaltet',
    text: [
      'Der Webhook an {host} wurde abgeschaltet, weil seit drei Tagen keine Zustellung gelungen ist. Ereignisse werden nicht mehr dorthin gesendet.',
      'Die Liste der Zustellungen zeigt die Ursache. Beheben Sie den Fehler beim Empfänger, und schalten Sie den Webhook dann wieder ein.',
    ],
  },
  notice: {
    subject: 'Eine Änderung an Ihrem Konto',
    text: [
      '{notice}',
      'Wenn Sie das nicht waren, legen Sie jetzt ein neues Passwort fest, und beenden Sie die Sitzungen, die Sie nicht kennen.',
    ],
  },
  notices: {
    oauthLinked: 'Mit einem Konto eines anderen Anbieters kann man sich jetzt an Ihrem Konto anmelden.',
    passwordRemoved: 'Das Passwort wurde aus Ihrem Konto entfernt.',
    passkeyRemoved: 'Der Passkey „{name}“ wurde aus Ihrem Konto entfernt.',
    linkRemoved: 'Die Anmeldung mit {provider} wurde aus Ihrem Konto entfernt.',
    tokenCreated: 'Für Ihr Konto wurde das Zugriffstoken „{name}“ erstellt. Es gilt für: {scopes}.',
    passkeyAdded: 'Ihrem Konto wurde ein Passkey hinzugefügt.',
    mfaEnabled: 'Der zweite Faktor Ihres Kontos wurde eingeschaltet.',
    mfaDisabled: 'Der zweite Faktor Ihres Kontos wurde ausgeschaltet.',
    mfaReset: 'Der zweite Faktor Ihres Kontos wurde von der Administration entfernt.',
    recoveryCodesRenewed:
      'Für Ihr Konto wurden neue Wiederherstellungscodes erzeugt; die alten funktionieren nicht mehr.',
    accountKept: 'Ihr Konto bleibt bestehen: Die Löschung wurde rückgängig gemacht.',
    emailChanged: 'Die E-Mail-Adresse Ihres Kontos wurde geändert. Nachrichten gehen ab jetzt an die neue Adresse.',
    teamMember: 'Sie sind jetzt Mitglied des Teams „{team}“.',
    teamOwner: 'Sie verwalten jetzt das Team „{team}“.',
    teamLeft: 'Sie gehören nicht mehr zum Team „{team}“.',
    passwordChanged: 'Das Passwort Ihres Kontos wurde geändert.',
    passwordChangedLinksStay:
      'Das Passwort Ihres Kontos wurde geändert. Mit diesen Konten anderer Anbieter und Passkeys kann man sich weiterhin anmelden: {links}. Entfernen Sie, was Ihnen nicht gehört.',
    passwordChangedLinksRemoved:
      'Das Passwort Ihres Kontos wurde geändert. Verknüpfte Anmeldungen wurden entfernt: {count}.',
  },
};

/** All mails in Chinese (simplified). */
export const zh: MailTexts = {
  registrationCode: {
    subject: '您的验证码',
    text: ['您的验证码是 {code}', '验证码自首次申请起十分钟内有效。如果不是您本人申请，请忽略此邮件。'],
  },
  accountExists: {
    subject: '您已经有账户了',
    text: [
      '有人（可能是您本人）尝试用此邮箱地址建立账户。您已经有账户：请直接登录；如果忘记了密码，请申请重设密码。如果不是您本人操作，则无需处理。',
    ],
  },
  passwordReset: {
    subject: '设置新密码',
    text: [
      '有人（可能是您本人）申请设置新密码。请在 15 分钟内打开',
      '{link}',
      '或提供此令牌：{token}',
      '如果不是您本人操作，请忽略此邮件：密码不会改变。',
    ],
  },
  setPassword: {
    subject: '已为您创建账户',
    text: [
      '管理员已为此邮箱地址创建账户。请在三天内打开以下链接设置密码',
      '{link}',
      '或提供此令牌：{token}',
      '如果您不了解此事，请忽略此邮件。',
    ],
  },
  invitation: {
    subject: '您收到了邀请',
    text: [
      '管理员邀请您创建账户。请在七天内打开',
      '{link}',
      '或提供此令牌：{token}',
      '如果您不了解此事，请忽略此邮件。',
    ],
  },
  accountClosing: {
    subject: '您的账户将被删除',
    text: [
      '您申请了删除账户。账户及其全部数据将于 {day}（UTC）删除；其密钥从现在起失效。在此之前，您可以登录并撤销删除。',
      '如果不是您本人操作，请立即登录，撤销删除，并设置新密码。',
    ],
  },
  webhookDisabled: {
    subject: 'Webhook 已停用',
    text: [
      '发往 {host} 的 Webhook 已停用，因为三天内没有一次投递成功。事件不再发送到该地址。',
      '投递列表会显示原因。请修复接收端，然后重新启用该 Webhook。',
    ],
  },
  notice: {
    subject: '您的账户有变更',
    text: ['{notice}', '如果不是您本人操作，请立即设置新密码，并结束您不认识的会话。'],
  },
  notices: {
    oauthLinked: '现在可以用其他网站的账户登录您的账户。',
    passwordRemoved: '您账户的密码已被移除。',
    passkeyRemoved: '通行密钥“{name}”已从您的账户移除。',
    linkRemoved: '通过 {provider} 的登录方式已从您的账户移除。',
    tokenCreated: '您的账户新建了访问令牌“{name}”，可用于：{scopes}。',
    passkeyAdded: '您的账户新增了一个通行密钥。',
    mfaEnabled: '您账户的双重验证已开启。',
    mfaDisabled: '您账户的双重验证已关闭。',
    mfaReset: '管理员已移除您账户的双重验证。',
    recoveryCodesRenewed: '您的账户已生成新的恢复代码；旧代码不再有效。',
    accountKept: '您的账户将保留：删除已撤销。',
    emailChanged: '您账户的邮箱地址已更改。今后的邮件将发送到新地址。',
    teamMember: '您现在是团队“{team}”的成员。',
    teamOwner: '您现在是团队“{team}”的负责人。',
    teamLeft: '您已不在团队“{team}”中。',
    passwordChanged: '您账户的密码已更改。',
    passwordChangedLinksStay:
      '您账户的密码已更改。以下其他网站的账户和通行密钥仍可登录：{links}。请移除不属于您的登录方式。',
    passwordChangedLinksRemoved: '您账户的密码已更改。已移除 {count} 个关联的登录方式。',
  },
};
