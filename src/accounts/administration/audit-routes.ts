import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { createAuditStore } from '../storage/audit-store.ts';
import { timeText } from '../user-object.ts';
import { PageQuery, pageOf } from './page.ts';

const Query = Type.Object({
  actor: Type.Optional(
    Type.String({ maxLength: 200, description: 'Id of a user, `agent:<id>`, `command`, `billing`.' }),
  ),
  event: Type.Optional(Type.String({ maxLength: 100, examples: ['login.failed'] })),
  ...PageQuery.properties,
});
const Entries = Type.Object({
  entries: Type.Array(
    Type.Object({
      id: Type.String(),
      at: Type.String(),
      event: Type.String(),
      actor: Type.String(),
      subject: Type.String(),
      address: Type.String(),
      requestId: Type.String(),
      details: Type.Record(Type.String(), Type.Unknown()),
    }),
  ),
  nextCursor: Type.Union([Type.String(), Type.Null()]),
});

export function auditRoutes({ access, database }: Pick<AccountsCore, 'access' | 'database'>): readonly Route[] {
  const store = createAuditStore(database);
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/admin/audit',
      guard: access.adminWith('admin.audit.read'),
      summary: 'What happened, newest first.',
      schema: { query: Query, response: { 200: Entries } },
      async handle({ query }) {
        const { actor, event, cursor, limit } = query as Static<typeof Query>;
        const { rows: entries, nextCursor } = await pageOf(limit, (most) => store.list({ actor, event }, cursor, most));
        const described = entries.map(({ request_id, at, details, ...entry }) => ({
          ...entry,
          at: timeText(at),
          requestId: request_id,
          details: JSON.parse(details) as Record<string, unknown>,
        }));
        return { entries: described, nextCursor };
      },
    },
  ];
  return rows;
}
