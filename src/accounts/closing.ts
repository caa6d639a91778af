import type { UserCall } from './access.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort } from './accounts-core.ts';
import { refuseForLastAdmin } from './administration/user-administration.ts';
import { type Export, MAX_EXPORTED_ENTRIES } from './contract/own-data.ts';
import type { User } from './contract/user.ts';
import type { Credentials } from './credentials/credentials.ts';
import type { OwnSessions } from './login/own-sessions.ts';
import type { Reauthentication } from './login/password-check.ts';
import { accountClosingMail, securityNoticeMail } from './mail/messages.ts';
import type { AuditRow, FoundUser } from './storage/accounts-schema.ts';
import { createAuditStore } from './storage/audit-store.ts';
import { DAY_MS } from './storage/user-store.ts';
import { describeSubscription } from './subscriptions/subscriptions.ts';
import { describeTeam } from './teams/teams.ts';
import { describeToken } from './tokens/access-tokens.ts';
import { timeText } from './user-object.ts';

/** How long owners can undo the deletion of their account. */
const GRACE_MS = 14 * DAY_MS;
const MAX_EXPORTED_SUBSCRIPTIONS = 1000;

/** What owners do with all of their data: take it along, or have it deleted. */
export interface Closing {
  exportOf(call: UserCall): Promise<Export>;
  /** Deletes the account in 14 days. Needs the password or a fresh login. */
  begin(password: string | undefined, call: UserCall): Promise<Answer>;
  undo(call: UserCall): Promise<Answer>;
}

interface Answer {
  readonly message: string;
  readonly user: User;
}

type Parts = BasePort &
  PeoplePort &
  CredentialsPort &
  PostPort & {
    readonly reauthentication: Reauthentication;
    readonly ownCredentials: Credentials;
    readonly ownSessions: OwnSessions;
  };

export function createClosing(parts: Parts): Closing {
  const { database, userAdministration: store, limiter, audit, mail, clock } = parts;
  const auditStore = createAuditStore(database);
  const entryOf = (event: string, { caller: { user }, head }: UserCall, details = {}) =>
    audit.statement({ event, actor: user.id, subject: user.id, head, details });
  const described = async (message: string, user: FoundUser) => ({
    message,
    user: await parts.userObjects.describe(user),
  });

  return {
    async exportOf(call) {
      const { user } = call.caller;
      call.reply.header('content-disposition', 'attachment; filename="account.json"');
      await limiter.takeAll([{ policy: 'export', key: user.id }]);
      await database.write([entryOf('user.exported', call)]);
      const now = clock.now();
      const keys = parts.completionKeys();
      const entries = await auditStore.list({ about: user.id }, undefined, MAX_EXPORTED_ENTRIES + 1);
      const subscriptions = await parts.subscriptions.ofUser(user.id, MAX_EXPORTED_SUBSCRIPTIONS);
      return {
        exportedAt: timeText(now),
        user: await parts.userObjects.describe(user),
        credentials: [...(await parts.ownCredentials.list(user.id))],
        sessions: await parts.ownSessions.list(user),
        subscriptions: subscriptions.map((row) => describeSubscription(row, now)),
        teams: (await parts.teams.teamsOf(user.id)).map((team) => describeTeam(team, team.member_role)),
        tokens: (await parts.accessTokens.ofOwner(`user:${user.id}`, now)).map(describeToken),
        keys: [...((await keys?.list(user.id)) ?? [])],
        usage: (await keys?.usage(user.id)) ?? null,
        audit: entries.slice(0, MAX_EXPORTED_ENTRIES).map((row) => ownEntry(row, user.id)),
        auditIsComplete: entries.length <= MAX_EXPORTED_ENTRIES,
      };
    },
    async begin(password, call) {
      const { user } = call.caller;
      const proof = await parts.reauthentication.passwordOrFreshLogin(user, password, call.head);
      const deletesAt = clock.now() + GRACE_MS;
      const changed = await store.change(user.id, (standing) => {
        // Asking again does not put it off.
        if (standing.user.closing_at !== null) return { change: {}, also: proof };
        refuseForLastAdmin(standing);
        const entry = entryOf('user.closing', call, { deletesAt: timeText(deletesAt) });
        const notice = mail.enqueue(accountClosingMail(user.email, deletesAt));
        return { change: { closing_at: deletesAt, updated_at: clock.now() }, also: [...proof, entry, notice] };
      });
      mail.wake();
      return described('account_closing', changed ?? user);
    },
    async undo(call) {
      const { user } = call.caller;
      const changed = await store.change(user.id, (standing) => {
        if (standing.user.closing_at === null) return { change: {}, also: [] };
        const notice = mail.enqueue(securityNoticeMail(user.email, 'accountKept'));
        return {
          change: { closing_at: null, updated_at: clock.now() },
          also: [entryOf('user.closing_undone', call), notice],
        };
      });
      mail.wake();
      return described('account_kept', changed ?? user);
    },
  };
}

/** Where an administrator sat is not the owner's data. */
function ownEntry({ at, event, actor, address, details }: AuditRow, userId: string) {
  const isSomeoneElse = actor !== '' && actor !== userId;
  return {
    at: timeText(at),
    event,
    byOwner: actor === userId,
    ...(isSomeoneElse ? {} : { address }),
    details: JSON.parse(details) as Record<string, unknown>,
  };
}
