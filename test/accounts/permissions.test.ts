import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN_PERMISSIONS, holdsPermission, permissionsOf } from '../../src/accounts/permissions.ts';

test('root and admin hold every key, operators all but two, users and readers none', () => {
  for (const role of ['root', 'admin']) assert.deepEqual(permissionsOf(role, {}), [...ADMIN_PERMISSIONS].sort());
  const withheld = ADMIN_PERMISSIONS.filter((key) => !holdsPermission('operator', key, {}));
  assert.deepEqual(withheld, ['admin.users.delete.write', 'admin.users.role.write']);
  for (const role of ['user', 'readonly', 'stranger', '']) assert.deepEqual(permissionsOf(role, {}), []);
});

test('the matrix changes what operators hold, and never what admins or users do under admin', () => {
  const matrix = {
    'admin.audit.read': { operator: false, admin: false, user: true },
    'admin.users.delete.write': { operator: true, readonly: true },
    'admin.made.up': { admin: true, user: true },
  };
  assert.equal(holdsPermission('operator', 'admin.audit.read', matrix), false);
  assert.equal(holdsPermission('operator', 'admin.users.delete.write', matrix), true);
  assert.equal(holdsPermission('admin', 'admin.audit.read', matrix), true);
  assert.deepEqual([...permissionsOf('user', matrix), ...permissionsOf('readonly', matrix)], []);
  assert.ok(!permissionsOf('admin', matrix).includes('admin.made.up'));
});

test('the app’s own modules come back for the roles that have them', () => {
  const matrix = { billing: { user: true, admin: false }, reports: { operator: true }, constructor: { user: true } };
  assert.deepEqual(permissionsOf('user', matrix), ['billing', 'constructor']);
  assert.ok(!permissionsOf('admin', matrix).includes('billing'));
  assert.ok(permissionsOf('admin', matrix).includes('reports'));
  assert.equal(holdsPermission('user', 'toString', {}), false);
});
