import { expectChanges } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { UserCall } from '../access.ts';
import type { BasePort, PeoplePort, PostPort } from '../accounts-core.ts';
import { pageOf } from '../contract/conventions.ts';
import { normalizeEmail } from '../registration/identity.ts';
import { timeText } from '../user-object.ts';

type Parts = BasePort & PeoplePort & PostPort;

/** Addresses that may neither register nor log in: the list, and the way off it. `UserAdministration.block` adds one. */
export function createBlacklist({ database, blacklist, clientList, audit, owners, ownerStore }: Parts) {
  return {
    async list({ cursor = '', limit }: { cursor?: string; limit?: number }) {
      const read = (most: number) => blacklist.list(cursor, most);
      const { rows, nextCursor } = await pageOf(limit, read, ({ email }) => email);
      const described = rows.map(({ email, created_by: createdBy, created_at: at }) => ({
        email,
        createdBy,
        createdAt: timeText(at),
      }));
      return { blacklist: described, nextCursor };
    },
    async remove(given: string, { caller: { user }, head }: UserCall): Promise<void> {
      const email = normalizeEmail(given);
      if (email === undefined) throw new AppError('ADDRESS_NOT_LISTED');
      const removed = audit.statement({ event: 'blacklist.removed', actor: user.id, subject: email, head });
      const statements = [expectChanges(blacklist.remove(email), 1), clientList.touch(), removed];
      try {
        await database.write(statements, { conflict: 'ADDRESS_NOT_LISTED' });
      } finally {
        const owner = await ownerStore.idOfEmail(email);
        if (owner !== undefined) await owners.refresh(owner);
      }
    },
  };
}
