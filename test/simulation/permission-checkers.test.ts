import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  checkPermissions,
  type PermissionsEvent,
  type StoredPermission,
} from '../faults/simulation/bridge/check-permissions.ts';

const request: StoredPermission = {
  id: 'p',
  title: 't',
  state: 'allowed',
  option_id: 'yes',
  expires_at: 9,
  answered_at: 5,
};
const setUp: PermissionsEvent = { kind: 'set-up', fails: 0, isSlow: 0 };
const answer = (decision: 'allow' | 'deny', outcome: 'ok' | 'fail' | 'unknown', code = ''): PermissionsEvent => ({
  kind: 'answer',
  permissionId: 'p',
  decision,
  outcome,
  code,
});
const gets = (optionId: string): PermissionsEvent => ({ kind: 'gets', at: 1, title: 't', optionId });
const seen = (state: string): PermissionsEvent => ({ kind: 'seen', permissionId: 'p', state, optionId: '' });
const allowed = [
  setUp,
  seen('open'),
  answer('allow', 'ok'),
  answer('deny', 'fail', 'PERMISSION_ANSWERED'),
  gets('yes'),
];

test('a run of permissions in which everything held has no violations', () => {
  assert.deepEqual(checkPermissions(allowed, [request], 0), []);
  assert.deepEqual(checkPermissions([setUp, answer('allow', 'unknown'), gets('')], [request], 0), []);
  const expired = { ...request, state: 'expired', option_id: '', answered_at: 9 };
  assert.deepEqual(checkPermissions([setUp, answer('deny', 'fail', 'PERMISSION_EXPIRED'), gets('')], [expired], 0), []);
});

test('each thing that must not happen to a request is found', () => {
  const wrong: readonly [RegExp, readonly PermissionsEvent[], StoredPermission, number?][] = [
    [/is open, and its turn/, [setUp], { ...request, state: 'open', option_id: '' }],
    [/2 answers to p counted/, [...allowed, answer('allow', 'ok')], request],
    [/was answered with allow, and is denied/, allowed, { ...request, state: 'denied', option_id: 'no' }],
    [/nobody said so/, [setUp], request],
    [/with the option "no"/, allowed, { ...request, option_id: 'no' }],
    [/expired before its time/, [setUp], { ...request, state: 'expired', option_id: '' }],
    [/was cancelled, and is allowed/, [...allowed, seen('cancelled')], request],
    [/refused with INTERNAL_ERROR/, [...allowed, answer('deny', 'fail', 'INTERNAL_ERROR')], request],
    [
      /got "yes" for a request that is cancelled/,
      [setUp, gets('yes')],
      { ...request, state: 'cancelled', option_id: '' },
    ],
    [/never answered/, allowed, request, 1],
    [/refused with PERMISSION_NOT_FOUND/, [...allowed, answer('deny', 'fail', 'PERMISSION_NOT_FOUND')], request],
    [/was answered, and is not stored/, allowed, { ...request, id: 'another' }],
  ];
  for (const [what, events, stored, unanswered = 0] of wrong) {
    const violations = checkPermissions(events, [stored], unanswered);
    assert.ok(
      violations.some((violation) => what.test(violation)),
      `${what} is not among ${JSON.stringify(violations)}`,
    );
  }
});
