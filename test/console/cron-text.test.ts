import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cronText, everyText } from '../../src/console/parts/cron-text.ts';

test('patterns of cron become words, except those that words do not make clearer', () => {
  const told = {
    '0 8 * * *': 'every day at 08:00',
    '30 6 * * 1-5': 'Monday to Friday at 06:30',
    '0 9 * * 1': 'every Monday at 09:00',
    '0 9 * * 0': 'every Sunday at 09:00',
    '0 9 * * 7': 'every Sunday at 09:00',
    '0 9,17 * * 1,3,5': 'Monday, Wednesday and Friday at 09:00 and 17:00',
    '*/15 * * * *': 'every 15 minutes',
    '* * * * *': 'every minute',
    '0 * * * *': 'every hour',
    '5 * * * *': 'every hour at minute 5',
    '0 */6 * * *': 'every 6 hours',
    '*/10 8-17 * * 1-5': 'Monday to Friday every 10 minutes from 08:00 to 17:59',
    '15 9-17 * * *': 'every hour from 09:15 to 17:15',
    '0 0 1 * *': 'on day 1 of the month at 00:00',
    '0 0 1,15 * *': 'on days 1 and 15 of the month at 00:00',
    '0 12 24 12 *': 'on day 24 in December at 12:00',
    '0 7 * 6-8 *': 'every day in June to August at 07:00',
  };
  for (const [pattern, words] of Object.entries(told)) assert.equal(cronText(pattern), words, pattern);
  // Either of both days, a step of days, a list of minutes, names, and what is no pattern.
  for (const pattern of [
    '0 8 1 * 1',
    '0 8 */2 * *',
    '1,2 8-9 * * *',
    '0 8 * * mon',
    '61 8 * * *',
    '0 8 * *',
    '',
    '*/0 * * * *',
    '*/45 * * * *',
    '0 */5 * * *',
  ])
    assert.equal(cronText(pattern), undefined, pattern);
  assert.deepEqual(['30m', '1h', '6h', '1d'].map(everyText), [
    'every 30 minutes',
    'every hour',
    'every 6 hours',
    'every day',
  ]);
});
