import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callsHref, hourOf, momentOf } from '../../src/console/screens/models/call-filters.ts';

const DAYS = { from: '2030-01-30', to: '2030-01-31' };
const ME = 'user:usr_1';

test('a group of a report leads to its calls where these can be listed', () => {
  const of = (group: string, value: string, me: string | undefined = ME) =>
    callsHref({ group, value, me, ...DAYS })?.replace('/console/calls?', '');
  const days = 'from=2030-01-30&to=2030-01-31';
  assert.equal(of('model', 'lab/small'), `model=lab%2Fsmall&${days}`);
  assert.equal(of('key', 'key_1'), `key=key_1&${days}`);
  assert.equal(of('api', 'lab'), `api=lab&${days}`);
  assert.equal(of('team', 'team:1'), `owner=team%3A1&${days}`);
  assert.equal(of('day', '2030-01-30'), days);
  assert.equal(of('owner', ME), `owner=user%3Ausr_1&${days}`);
  assert.equal(of('owner', 'user:usr_2'), undefined, 'the calls of others are not listed');
  assert.equal(
    callsHref({ group: 'owner', value: 'user:usr_2', me: undefined, ...DAYS }),
    `/console/calls?owner=user%3Ausr_2&${days}`,
  );
  for (const value of ['', 'none', 'other', 'unknown'])
    for (const group of ['model', 'key', 'api', 'team', 'owner']) assert.equal(of(group, value), undefined, value);
  assert.equal(of('tag', 'blue'), undefined);
});

test('a day and an hour are the moments when they begin and end here', () => {
  const moment = (year: number, month: number, ...rest: number[]) => new Date(year, month, ...rest).toISOString();
  assert.deepEqual(momentOf('from', '2030-01-31'), { from: moment(2030, 0, 31) });
  assert.deepEqual(momentOf('to', '2030-01-31'), { to: moment(2030, 0, 31, 23, 59, 59, 999) });
  const { from, to } = hourOf('2030-01-31', '10:00');
  assert.deepEqual(momentOf('from', from), { from: moment(2030, 0, 31, 10) });
  assert.deepEqual(momentOf('to', to), { to: moment(2030, 0, 31, 10, 59, 59, 999) });
  for (const wrong of [null, '', 'soon', 'T', '2030-01-31T']) assert.deepEqual(momentOf('from', wrong), {}, `${wrong}`);
});
