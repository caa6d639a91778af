import type { MailTexts } from './en.ts';

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
