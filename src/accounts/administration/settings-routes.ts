import { type Static, Type } from 'typebox';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { PermissionMatrix } from '../permissions.ts';
import { createPermissionStore } from '../storage/permission-store.ts';
import { checkMatrix, grantNotHeld, matrixDiff } from './permission-change.ts';

const BODY_LIMIT = 256 * 1024;

const Settings = Type.Object({
  version: Type.Integer({ minimum: 0, description: 'The version that the change was made from.' }),
  matrix: Type.Record(Type.String(), Type.Record(Type.String(), Type.Boolean()), {
    description: 'Module, role, whether it is granted.',
    examples: [{ 'admin.audit.read': { operator: false }, reports: { user: true } }],
  }),
});

/** The permission matrix (contract/accounts: admin/settings). */
export function settingsRoutes(core: Pick<AccountsCore, 'access' | 'database' | 'audit' | 'clock'>): readonly Route[] {
  const { access, database, audit, clock } = core;
  const store = createPermissionStore(database);

  async function current(): Promise<{ version: number; matrix: PermissionMatrix }> {
    const row = await store.read();
    return row === undefined ? { version: 0, matrix: {} } : { version: row.version, matrix: JSON.parse(row.matrix) };
  }

  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/admin/settings',
      guard: access.adminWith('admin.settings.read'),
      summary: 'The permission matrix.',
      schema: { response: { 200: Settings } },
      handle: current,
    },
    {
      method: 'POST',
      path: '/api/auth/admin/settings',
      guard: access.adminWith('admin.settings.write'),
      summary: 'Replaces the permission matrix, if nobody else has done so meanwhile.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Settings, response: { 200: Settings } },
      async handle({ caller: { user }, body, head }) {
        const { version, matrix } = body as Static<typeof Settings>;
        checkMatrix(matrix);
        const before = await current();
        if (before.version !== version) throw new AppError('VERSION_CONFLICT', { ...before });
        const permission = grantNotHeld(user.role, before.matrix, matrix);
        if (permission !== undefined) throw new AppError('PERMISSION_NOT_HELD', { permission });
        const details = { version: version + 1, diff: matrixDiff(before.matrix, matrix) };
        const entry = { event: 'matrix.changed', actor: user.id, subject: 'permission_matrix', head, details };
        try {
          await database.write([store.replace(JSON.stringify(matrix), version, clock.now()), audit.statement(entry)]);
        } catch (error) {
          throw errorCode(error) === 'STORAGE_CONFLICT'
            ? new AppError('VERSION_CONFLICT', { ...(await current()) })
            : error;
        }
        return { version: version + 1, matrix };
      },
    },
  ];
  return rows;
}
