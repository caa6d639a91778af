import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { Credential, LinkedLogin } from '../contract/login.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import type { Providers } from '../oauth/oauth-providers.ts';
import type { CredentialRow, FoundUser } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';
import type { Passkeys } from './passkeys.ts';

/** What owners see and remove of their own credentials. Every change is mailed and recorded. */
export interface Credentials {
  list(userId: string): Promise<readonly Credential[]>;
  /** Removes a password, a linked account or a passkey, and ends every other session. Never the last means of login. */
  remove(id: string, call: UserCall): Promise<void>;
  /** Linked accounts and passkeys. */
  links(userId: string): Promise<readonly LinkedLogin[]>;
  /** Removes all linked accounts and passkeys, for the batch that sets a password. */
  droppingLinks(user: FoundUser, links: readonly LinkedLogin[], head: RequestHead): readonly Runnable[];
}

/** What a fresh login may remove without a code. */
const REMOVABLE: ReadonlySet<string> = new Set(['password', 'oauth', 'passkey']);

type Parts = AccountsCore & {
  readonly providers: Providers;
  readonly passkeys: Passkeys;
};

export function createCredentials(parts: Parts): Credentials {
  const { users, sessions, credentials, flowStore, audit, mail, clock, providers, passkeys } = parts;

  function linkOf({ id, kind, subject, label, created_at: since }: CredentialRow): LinkedLogin {
    if (kind === 'passkey') return { id, provider: 'passkey', email: '', name: label, createdAt: timeText(since) };
    const [namespace = ''] = subject.split(' ');
    return { id, provider: providers.nameOf(namespace) ?? namespace, email: label, createdAt: timeText(since) };
  }

  /**
   * Whether someone can log in with it by itself. A linked account counts only while its provider is configured, a passkey
   * only at the host name that it was made for.
   */
  function isMeansOfLogin(row: CredentialRow): boolean {
    if (row.kind === 'password') return true;
    if (row.kind === 'passkey') return passkeys.isUsable(row);
    return row.kind === 'oauth' && providers.nameOf(row.subject.split(' ')[0] ?? '') !== undefined;
  }

  const removal = (user: Pick<FoundUser, 'id'>, credential: string, details: object, head: RequestHead): Runnable => {
    const entry = { event: 'credential.removed', actor: user.id, subject: user.id, head };
    return audit.statement({ ...entry, details: { credential, ...details } });
  };

  return {
    async list(userId) {
      const rows = await credentials.ofUser(userId);
      const codes = rows.filter(({ kind }) => kind === 'recovery_code');
      const described = rows.filter(({ kind }) => kind !== 'recovery_code').map((row) => describe(row, linkOf));
      const [first] = codes;
      if (first === undefined) return described;
      const since = timeText(first.created_at);
      const group = { id: 'recovery_codes', kind: 'recovery_codes', state: 'active', left: codes.length };
      return [...described, { ...group, createdAt: since, lastUsedAt: null }];
    },
    async remove(id, { caller: { user }, head }) {
      const removed = await credentials.remove({ id, userId: user.id }, (row, rest) => {
        // A code is asked for where the second factor is switched off; a session alone must not be able to.
        if (!REMOVABLE.has(row.kind)) {
          throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'the password and a code at mfa/disable' });
        }
        if (!rest.some(isMeansOfLogin)) throw new AppError('LAST_CREDENTIAL');
        const link = linkOf(row);
        return [
          users.raiseEpoch({ id: user.id, epoch: user.access_epoch, now: clock.now() }),
          // Ends the sessions that were opened with it.
          sessions.endOthersOf({ id: user.session_id, userId: user.id }),
          sessions.carryOver({ id: user.session_id, epoch: user.access_epoch }),
          flowStore.removeOfUser(user.id),
          removal(user, row.kind, row.kind === 'oauth' ? { provider: link.provider } : {}, head),
          mail.enqueue(removalMail(user.email, row.kind, link)),
        ];
      });
      if (removed === undefined) throw new AppError('CREDENTIAL_NOT_FOUND');
      mail.wake();
    },
    links: async (userId) =>
      (await credentials.ofUser(userId)).filter(({ kind }) => kind === 'oauth' || kind === 'passkey').map(linkOf),
    droppingLinks: (user, links, head) => [
      expectChanges(credentials.removeLinks(user.id), links.length),
      ...links.map(({ provider }) =>
        provider === 'passkey' ? removal(user, provider, {}, head) : removal(user, 'oauth', { provider }, head),
      ),
    ],
  };
}

function removalMail(to: string, kind: string, { name = '', provider }: LinkedLogin) {
  if (kind === 'password') return securityNoticeMail(to, 'passwordRemoved');
  return kind === 'passkey'
    ? securityNoticeMail(to, 'passkeyRemoved', { name })
    : securityNoticeMail(to, 'linkRemoved', { provider });
}

function describe(row: CredentialRow, linkOf: (row: CredentialRow) => LinkedLogin): Credential {
  const { id, kind, state, created_at: since, last_used_at: used } = row;
  const times = { createdAt: timeText(since), lastUsedAt: used === null ? null : timeText(used) };
  if (kind === 'passkey') return { id, kind, state, name: row.label, ...times };
  if (kind !== 'oauth') return { id, kind, state, ...times };
  const { provider, email } = linkOf(row);
  return { id, kind, state, provider, email, ...times };
}
