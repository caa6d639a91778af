import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ADMIN_PERMISSIONS,
  holdsPermission,
  isAdminRole,
  isRole,
  mayActOn,
  permissionsOf,
  ROLE_NAMES,
  ROLES,
  requireRole,
  unknownRole,
} from '../../src/accounts/permissions.ts';

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

test('nobody acts on someone above them', () => {
  const mayOn = (actor: string) => ROLES.filter((role) => mayActOn(actor, role));
  assert.deepEqual(mayOn('root'), [...ROLES]);
  assert.deepEqual(mayOn('admin'), ['admin', 'operator', 'user', 'readonly']);
  assert.deepEqual(mayOn('operator'), ['operator', 'user', 'readonly']);
  for (const actor of ['user', 'readonly', 'stranger']) assert.deepEqual(mayOn(actor), ['user', 'readonly'], actor);
  assert.equal(mayActOn('user', 'stranger'), true, 'a role that is not there ranks with users');
});

test('nobody gives a role above their own, and root is not given away', () => {
  const given = (actor: string) =>
    ROLES.filter((role) => {
      try {
        return requireRole(role, actor) === role;
      } catch {
        return false;
      }
    });
  assert.deepEqual(given('root'), ['admin', 'operator', 'user', 'readonly']);
  assert.deepEqual(given('admin'), ['admin', 'operator', 'user', 'readonly']);
  assert.deepEqual(given('operator'), ['operator', 'user', 'readonly']);
  assert.deepEqual(given('user'), ['user', 'readonly']);
  assert.throws(() => requireRole('admin', 'operator'), { code: 'FORBIDDEN' });
  assert.throws(() => requireRole('root', 'root'), {
    code: 'INVALID_ROLE',
    details: { reason: 'There is one root, and it is not given away.' },
  });
  assert.throws(() => requireRole('owner', 'root'), { code: 'INVALID_ROLE' });
});

test('there are five roles, and an unknown one is refused with their names', () => {
  for (const role of ROLES) assert.equal(isRole(role), true);
  for (const text of ['', 'Root', 'admins', 'toString']) assert.equal(isRole(text), false, text);
  assert.deepEqual(
    ROLES.filter((role) => isAdminRole(role)),
    ['root', 'admin'],
  );
  assert.equal(ROLE_NAMES, 'root, admin, operator, user, readonly');
  assert.deepEqual(unknownRole().details, {
    reason: 'There is no such role; use one of root, admin, operator, user, readonly.',
  });
});
