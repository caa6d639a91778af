import { type Static, Type } from 'typebox';
import { expectChanges } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { BODY_LIMIT } from '../limits.ts';
import { normalizeEmail } from '../registration/email-address.ts';
import { timeText } from '../user-object.ts';
import { PageQuery, pageOf } from './page.ts';
import { actorOf, type UserAdministration } from './user-administration.ts';

const Entry = Type.Object({ email: Type.String(), createdBy: Type.String(), createdAt: Type.String() });
const Entries = Type.Object({
  blacklist: Type.Array(Entry),
  nextCursor: Type.Union([Type.String(), Type.Null()]),
});
const Email = Type.Object({ email: Type.String({ examples: ['spam@example.org'] }) });

type Parts = Pick<AccountsCore, 'access' | 'database' | 'blacklist' | 'clientList' | 'audit' | 'owners' | 'ownerStore'>;

/** Addresses that may neither register nor log in. */
export function blacklistRoutes(parts: Parts, administration: Pick<UserAdministration, 'block'>): readonly Route[] {
  const { access, database, blacklist, clientList, audit, owners, ownerStore } = parts;
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/admin/blacklist',
      guard: access.adminWith('admin.blacklist.read'),
      summary: 'Addresses that may neither register nor log in.',
      schema: { query: PageQuery, response: { 200: Entries } },
      async handle({ query }) {
        const { cursor = '', limit } = query as Static<typeof PageQuery>;
        const { rows: entries, nextCursor } = await pageOf(
          limit,
          (most) => blacklist.list(cursor, most),
          ({ email }) => email,
        );
        const described = entries.map((entry) => ({
          email: entry.email,
          createdBy: entry.created_by,
          createdAt: timeText(entry.created_at),
        }));
        return { blacklist: described, nextCursor };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/admin/blacklist',
      guard: access.adminWith('admin.blacklist.write'),
      summary: 'Refuses an address; whoever has it is logged out.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Email, response: { 201: Email } },
      async handle(call) {
        const { email } = call.body as Static<typeof Email>;
        await administration.block(email, actorOf(call));
        call.reply.code(201);
        return { email: normalizeEmail(email) };
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/admin/blacklist/:email',
      guard: access.adminWith('admin.blacklist.write'),
      summary: 'Takes an address off the list.',
      schema: { response: { 204: Type.Null() } },
      async handle({ caller: { user }, params, head }) {
        const email = normalizeEmail(params.email ?? '');
        if (email === undefined) throw new AppError('ADDRESS_NOT_LISTED');
        const removed = audit.statement({ event: 'blacklist.removed', actor: user.id, subject: email, head });
        try {
          await database.write([expectChanges(blacklist.remove(email), 1), clientList.touch(), removed]);
        } catch (error) {
          throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError('ADDRESS_NOT_LISTED') : error;
        } finally {
          const owner = await ownerStore.idOfEmail(email);
          if (owner !== undefined) await owners.refresh(owner);
        }
      },
    },
  ];
  return rows;
}
