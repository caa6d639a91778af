import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { createAuditStore } from '../storage/audit-store.ts';
import { timeText } from '../user-object.ts';
import { PageQuery, pageOf } from './page.ts';

const time = (description: string) =>
  Type.Optional(Type.String({ maxLength: 64, description, examples: ['2030-01-31T00:00:00Z'] }));

const Query = Type.Object(
  {
    subject: Type.Optional(Type.String({ maxLength: 254, description: 'Id of whom or what it was done to.' })),
    address: Type.Optional(Type.String({ maxLength: 64, description: 'Where the request came from.' })),
    request: Type.Optional(Type.String({ maxLength: 128, description: 'Id of the request.' })),
    from: time('Not before this time.'),
    to: time('Before this time.'),
    actor: Type.Optional(
      Type.String({ maxLength: 200, description: 'Id of a user, `agent:<id>`, `command`, `billing`.' }),
    ),
    event: Type.Optional(Type.String({ maxLength: 100, examples: ['login.failed'] })),
    ...PageQuery.properties,
  },
  { additionalProperties: false },
);
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
        const { cursor, limit, from, to, ...given } = query as Static<typeof Query>;
        const filter = { ...given, from: readTime('from', from), to: readTime('to', to) };
        const { rows: entries, nextCursor } = await pageOf(limit, (most) => store.list(filter, cursor, most));
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

function readTime(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const at = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(at)) return at;
  const reason = `${name} is not a time such as 2030-01-31T00:00:00Z`;
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${name}`, message: reason }] });
}
