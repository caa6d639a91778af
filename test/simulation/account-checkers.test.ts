import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AccountEvent, AccountsEvent, StoredPeople } from '../faults/simulation/accounts/account-events.ts';
import { checkAccounts } from '../faults/simulation/accounts/check-accounts.ts';

const email = 'ann@example.org';
const address = '203.0.113.1';
const stored: StoredPeople = { emails: [email], forks: [] };
const setUp: AccountsEvent = { kind: 'set-up', fails: 0, isSlow: 0 };

type Rest<Event> = Event extends AccountEvent
  ? Omit<Event, 'email' | 'startedAt' | 'endedAt' | 'wallStartedAt' | 'wallEndedAt' | 'outcome'>
  : never;

const at = (moment: number, event: Rest<AccountEvent>, outcome: AccountEvent['outcome'] = 'ok'): AccountEvent =>
  ({
    ...event,
    email,
    outcome,
    startedAt: moment,
    endedAt: moment + 5,
    wallStartedAt: moment,
    wallEndedAt: moment + 5,
  }) as AccountEvent;
const registered = at(0, { kind: 'register', password: 'p1' });
const loggedIn = at(100, { kind: 'login', address, password: 'p1', token: 't1', refresh: 'r1' });
const refreshed = (moment: number, refresh = 'r2') =>
  at(moment, { kind: 'refresh', used: 'r1', token: `t of ${refresh}`, refresh });
const checked = (moment: number, by: string, outcome: AccountEvent['outcome'] = 'ok') =>
  at(moment, { kind: 'check', by, ...(outcome === 'fail' && { code: 'INVALID_SESSION' }) }, outcome);
const changed = at(1000, { kind: 'password', by: 'r1', address, from: 'p1', to: 'p2', token: 't9', refresh: 'r9' });
const refusedLogin = (moment: number, password = 'wrong') =>
  at(moment, { kind: 'login', address, password, code: 'INVALID_CREDENTIALS' }, 'fail');
const begun = [setUp, registered, loggedIn];

test('a run of accounts in which everything held has no violations', () => {
  const events = [...begun, refreshed(200), refreshed(300), checked(400, 'r2'), changed, checked(1100, 'r2', 'fail')];
  assert.deepEqual(checkAccounts([...events, checked(1200, 'r9')], stored, 0), []);
  const locked = [1, 2, 3, 4, 5].map((index) => refusedLogin(200 + 10 * index));
  assert.deepEqual(checkAccounts([...begun, ...locked, refusedLogin(300, 'p1')], stored, 0), []);
});

test('a session that is being ended counts until its end is acknowledged, and no longer', () => {
  const ending = { ...at(500, { kind: 'end', by: 'r1' }), endedAt: 520 } as AccountEvent;
  const refused = at(501, { kind: 'refresh', used: 'r1', code: 'INVALID_REFRESH_TOKEN' }, 'fail');
  assert.deepEqual(checkAccounts([...begun, ending, refused, checked(510, 'r1')], stored, 0), []);
  const [violation] = checkAccounts([...begun, ending, refused, checked(530, 'r1')], stored, 0);
  assert.match(violation ?? '', /had ended at 520/);
});

test('a session that was opened in the same millisecond as all others were ended may have come after', () => {
  const other = at(500, { kind: 'login', address, password: 'p1', token: 't3', refresh: 'r3' });
  const ending = (moment: number) => at(moment, { kind: 'end-others', by: 'r1' });
  assert.deepEqual(checkAccounts([...begun, other, ending(other.endedAt), checked(600, 'r3')], stored, 0), []);
  const [violation] = checkAccounts([...begun, other, ending(other.endedAt + 1), checked(600, 'r3')], stored, 0);
  assert.match(violation ?? '', /had ended at 511/);
});

test('failures while a login was under way may have locked early, so that those after it were not counted', () => {
  const during = [1, 2, 3, 4, 5].map((index) => ({ ...refusedLogin(99), endedAt: 110 + index }) as AccountEvent);
  const after = [1, 2, 3, 4, 5].map((index) => refusedLogin(20_000 + 10 * index));
  const later = (moment: number) => at(moment, { kind: 'login', address, password: 'p1' });
  const isFound = (events: readonly AccountEvent[]) => checkAccounts([setUp, ...events], stored, 0).length > 0;
  assert.equal(isFound([registered, loggedIn, ...during, ...after, later(31_000)]), false);
  assert.equal(isFound([registered, loggedIn, ...during.slice(1), ...after, later(31_000)]), true);
  assert.equal(isFound([registered, loggedIn, ...during.slice(1), ...after, later(50_020)]), false);
});

test('each thing that must not happen to people and their sessions is found', () => {
  const ended = at(500, { kind: 'end', by: 'r1' });
  const others = at(500, { kind: 'end-others', by: 'r9' });
  const stolen = at(500, { kind: 'refresh', used: 'r1', code: 'INVALID_REFRESH_TOKEN' }, 'fail');
  const wrongs = [1, 2, 3, 4, 5].map((index) => refusedLogin(200 + 10 * index));
  const wrong: readonly [what: RegExp, events: readonly AccountsEvent[], stored?: StoredPeople][] = [
    [/is lost/, begun, { ...stored, emails: [] }],
    [/two refresh tokens/, begun, { ...stored, forks: [{ session_id: 's', generation: 1 }] }],
    [/gave r2, and then r3/, [...begun, refreshed(200), refreshed(300, 'r3')]],
    [/answered again after/, [...begun, refreshed(200), refreshed(20_000)]],
    [/had ended at 505/, [...begun, ended, checked(600, 'r1')]],
    [/had ended at 505/, [...begun, others, checked(600, 'r1')]],
    [/had ended at 505/, [...begun, stolen, checked(600, 'r1')]],
    [/had ended at 1005/, [...begun, changed, checked(1100, 'r1')]],
    [/nothing had ended it/, [...begun, checked(200, 'r1', 'fail')]],
    [/which did not count/, [...begun, at(200, { kind: 'login', address, password: 'made up' })]],
    [/which did not count/, [...begun, changed, at(1100, { kind: 'login', address, password: 'p1' })]],
    [/after 5 failures/, [...begun, ...wrongs, at(300, { kind: 'login', address, password: 'p1' })]],
    [/with the password that counts/, [...begun, refusedLogin(200, 'p1')]],
  ];
  for (const [what, events, people = stored] of wrong) {
    const violations = checkAccounts(events, people, 0);
    assert.ok(
      violations.some((violation) => what.test(violation)),
      `${what} is not among ${JSON.stringify(violations)}`,
    );
  }
  assert.deepEqual(checkAccounts(begun, stored, 1), ['1 calls were never answered']);
});
