import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN_PERMISSIONS, holdsPermission, ROLES } from '../../src/accounts/permissions.ts';
import {
  cellOf,
  differences,
  type Matrix,
  modulesOf,
  PERMISSIONS,
  withEdits,
} from '../../src/console/screens/users/permission-table.ts';

test('the page knows every permission, and shows what each role has as the server decides it', () => {
  assert.deepEqual(PERMISSIONS.map(({ key }) => key).sort(), [...ADMIN_PERMISSIONS].sort());
  const matrices: readonly Matrix[] = [
    {},
    { 'admin.audit.read': { operator: false }, 'admin.users.role.write': { operator: true }, reports: {} },
    { reports: { user: true, admin: false }, constructor: { readonly: true } },
  ];
  for (const matrix of matrices) {
    for (const key of [...ADMIN_PERMISSIONS, ...modulesOf(matrix)]) {
      for (const role of ROLES) {
        assert.equal(cellOf(matrix, key, role).isGranted, holdsPermission(role, key, matrix), `${role} ${key}`);
      }
    }
  }
});

test('edits are laid over the matrix, and the difference is shown in words', () => {
  const before = { 'admin.audit.read': { operator: false }, reports: { user: true }, old: {} };
  const after = withEdits(before, {
    'admin.audit.read': { operator: true },
    reports: { admin: false },
    old: null,
    fresh: {},
  });
  assert.deepEqual(after, {
    'admin.audit.read': { operator: true },
    reports: { user: true, admin: false },
    fresh: {},
  });
  assert.deepEqual(differences(before, after, ROLES), [
    'operator gets admin.audit.read',
    'admin loses reports',
    'old is removed',
    'fresh is new',
    'admin gets fresh',
  ]);
  assert.deepEqual(differences(before, before, ROLES), []);
});
