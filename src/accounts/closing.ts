import { type Static, Type } from 'typebox';
import { AppError } from '../platform/errors/app-error.ts';
import type { Route } from '../platform/http/surface.ts';
import type { UserCaller } from './access.ts';
import type { AccountsCore } from './accounts-core.ts';
import { refuseForLastAdmin } from './administration/user-administration.ts';
import { Credential } from './contract/credential.ts';
import { optionalBody } from './contract/optional-body.ts';
import { Subscription } from './contract/subscription.ts';
import { User } from './contract/user.ts';
import type { Credentials } from './credentials/credentials.ts';
import { BODY_LIMIT } from './limits.ts';
import type { Reauthentication } from './login/reauthentication.ts';
import { OwnSession, ownSessions } from './login/session-routes.ts';
import { accountClosingMail, securityNoticeMail } from './mail/messages.ts';
import type { UserCall } from './mfa/enrolment.ts';
import type { AuditRow, FoundUser, UserRow } from './storage/accounts-schema.ts';
import { createAuditStore } from './storage/audit-store.ts';
import { DAY_MS } from './storage/user-count-store.ts';
import { describeSubscription } from './subscriptions/describe-subscription.ts';
import { timeText } from './user-object.ts';

/** How long owners can undo the deletion of their account. */
const GRACE_MS = 14 * DAY_MS;
/** More would make the response too large; `auditIsComplete` tells. */
const MAX_EXPORTED_ENTRIES = 10_000;
const MAX_EXPORTED_SUBSCRIPTIONS = 1000;

const Confirmation = Type.Object(
  { password: Type.Optional(Type.String({ description: 'Not needed within five minutes of a login.' })) },
  { additionalProperties: false },
);
const State = Type.Object({ message: Type.String(), user: User });
const Export = Type.Object({
  exportedAt: Type.String(),
  user: User,
  credentials: Type.Array(Credential),
  sessions: Type.Array(OwnSession),
  subscriptions: Type.Array(Subscription),
  keys: Type.Array(Type.Object({ id: Type.String() }, { additionalProperties: true })),
  usage: Type.Union([Type.Object({}, { additionalProperties: true }), Type.Null()], {
    description:
      'What the keys have used and the user has spent. Null where the completions service does not run here.',
  }),
  audit: Type.Array(
    Type.Object({
      at: Type.String(),
      event: Type.String(),
      byOwner: Type.Boolean(),
      address: Type.Optional(
        Type.String({ description: 'Left out when someone else did it, such as an administrator.' }),
      ),
      details: Type.Record(Type.String(), Type.Unknown()),
    }),
  ),
  auditIsComplete: Type.Boolean({ description: `False: only the newest ${MAX_EXPORTED_ENTRIES} entries are here.` }),
});

/** What owners do with all of their data: take it along, or have it deleted. */
export interface Closing {
  exportOf(call: UserCall): Promise<Static<typeof Export>>;
  /** Deletes the account in 14 days. Needs the password or a fresh login. */
  begin(password: string | undefined, call: UserCall): Promise<FoundUser>;
  undo(call: UserCall): Promise<FoundUser>;
}

type Parts = Pick<
  AccountsCore,
  | 'access'
  | 'database'
  | 'userAdministration'
  | 'sessions'
  | 'subscriptions'
  | 'completionKeys'
  | 'userObjects'
  | 'limiter'
  | 'audit'
  | 'mail'
  | 'clock'
> & { readonly reauthentication: Reauthentication; readonly ownCredentials: Credentials };

export function createClosing(parts: Parts): Closing {
  const { database, userAdministration: store, limiter, audit, mail, clock } = parts;
  const auditStore = createAuditStore(database);
  const entryOf = (event: string, { caller: { user }, head }: UserCall, details = {}) =>
    audit.statement({ event, actor: user.id, subject: user.id, head, details });

  return {
    async exportOf(call) {
      const { user } = call.caller;
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
        sessions: await ownSessions(parts.sessions, user, now),
        subscriptions: subscriptions.map((row) => describeSubscription(row, now)),
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
      return changed ?? user;
    },
    async undo(call) {
      const { user } = call.caller;
      const changed = await store.change(user.id, (standing) => {
        if (standing.user.closing_at === null) return { change: {}, also: [] };
        const notice = mail.enqueue(securityNoticeMail(user.email, 'Your account stays: its deletion was undone.'));
        return {
          change: { closing_at: null, updated_at: clock.now() },
          also: [entryOf('user.closing_undone', call), notice],
        };
      });
      mail.wake();
      return changed ?? user;
    },
  };
}

/** Throws ACCOUNT_CLOSING for someone whose account is about to be deleted: nothing new is given to them. */
export function requireNotClosing({ closing_at: at }: Pick<UserRow, 'closing_at'>): void {
  if (at !== null) throw new AppError('ACCOUNT_CLOSING');
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

export function closingRoutes({ access, userObjects }: Parts, closing: Closing): readonly Route[] {
  const described = async (message: string, user: FoundUser) => ({ message, user: await userObjects.describe(user) });
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/export',
      guard: access.user,
      summary: 'All data of the caller, as JSON.',
      schema: { response: { 200: Export } },
      handle(call) {
        call.reply.header('content-disposition', 'attachment; filename="account.json"');
        return closing.exportOf(call);
      },
    },
    {
      method: 'POST',
      path: '/api/auth/delete',
      guard: access.userEvenReadonly,
      summary: 'Deletes the caller’s account in 14 days; its keys stop working now.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: optionalBody(Confirmation, true), response: { 200: State } },
      async handle(call) {
        const { password } = (call.body ?? {}) as Static<typeof Confirmation>;
        return described('account_closing', await closing.begin(password, call));
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/delete',
      guard: access.userEvenReadonly,
      summary: 'Undoes the deletion: the account stays, and its keys work again.',
      schema: { response: { 200: State } },
      handle: async (call) => described('account_kept', await closing.undo(call)),
    },
  ];
  return rows;
}
