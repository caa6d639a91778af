import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkTiming, nextTime, type Timing, upcomingTimes } from '../../../src/bridge/schedules/fire-schedules.ts';
import fc from '../../kit/properties.ts';

const MINUTE = 60_000;
const cron = (pattern: string, timezone: string): Timing => ({ cron: pattern, every_ms: 0, timezone });

/** The times after a moment, in UTC without seconds. */
async function times(timing: Timing, after: string, count: number): Promise<string[]> {
  const found: string[] = [];
  let last = Date.parse(after);
  while (found.length < count) {
    last = (await nextTime(timing, last, last)) ?? Number.NaN;
    found.push(new Date(last).toISOString().slice(5, 16));
  }
  return found;
}

test('a time of day that a change of the clocks leaves out comes at the end of the gap, once', async () => {
  const berlin = cron('30 2 * * *', 'Europe/Berlin');
  assert.deepEqual(await times(berlin, '2027-03-27T00:00:00Z', 3), ['03-27T01:30', '03-28T01:00', '03-29T00:30']);
  const newYork = cron('30 2 * * *', 'America/New_York');
  assert.deepEqual(await times(newYork, '2027-03-13T00:00:00Z', 3), ['03-13T07:30', '03-14T07:00', '03-15T06:30']);
});

test('a time of day that comes twice fires the first time, and one without a fixed hour fires both times', async () => {
  const berlin = cron('30 2 * * *', 'Europe/Berlin');
  assert.deepEqual(await times(berlin, '2026-10-24T00:00:00Z', 3), ['10-24T00:30', '10-25T00:30', '10-26T01:30']);
  const newYork = cron('30 1 * * *', 'America/New_York');
  assert.deepEqual(await times(newYork, '2026-10-31T00:00:00Z', 3), ['10-31T05:30', '11-01T05:30', '11-02T06:30']);
  const hourly = cron('0 * * * *', 'America/New_York');
  assert.deepEqual(await times(hourly, '2026-11-01T04:30:00Z', 3), ['11-01T05:00', '11-01T06:00', '11-01T07:00']);
});

test('the morning stays the morning over both changes', async () => {
  const morning = cron('0 8 * * *', 'Europe/Berlin');
  assert.deepEqual(await times(morning, '2026-10-24T00:00:00Z', 2), ['10-24T06:00', '10-25T07:00']);
  assert.deepEqual(await times(morning, '2027-03-27T00:00:00Z', 2), ['03-27T07:00', '03-28T06:00']);
});

test('property: the next time is later, fits the pattern in its timezone, and none that fits lies between', async () => {
  const field = (low: number, high: number) =>
    fc.oneof(
      fc.constant('*'),
      fc.integer({ min: low, max: high }).map(String),
      fc.integer({ min: 2, max: 7 }).map((step) => `*/${step}`),
    );
  const pattern = fc.tuple(field(0, 59), field(0, 23), fc.constant('*'), fc.constant('*'), field(0, 6));
  const zone = fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kolkata', 'Australia/Lord_Howe');
  // In January no clocks change there: what the patterns say is exactly what must come.
  const start = fc.integer({ min: Date.UTC(2027, 0, 3), max: Date.UTC(2027, 0, 20) });
  const property = fc.asyncProperty(pattern, zone, start, async (fields, timezone, after) => {
    const next = (await nextTime(cron(fields.join(' '), timezone), after, after)) ?? Number.NaN;
    assert.ok(next > after);
    assert.equal(next % MINUTE, 0);
    const fits = matcher(fields, timezone);
    assert.ok(fits(next), `${fields.join(' ')} at ${new Date(next).toISOString()} in ${timezone}`);
    for (
      let time = Math.floor(after / MINUTE) * MINUTE + MINUTE;
      time < Math.min(next, after + 600 * MINUTE);
      time += MINUTE
    ) {
      assert.ok(!fits(time), `${fields.join(' ')} leaves out ${new Date(time).toISOString()} in ${timezone}`);
    }
  });
  await fc.assert(property, { numRuns: 60, endOnFailure: true });
});

test('property: times only grow, over changes of the clocks too, and are never closer than a minute', async () => {
  const pattern = fc.constantFrom('* * * * *', '*/7 1-3 * * *', '30 2 * * *', '15,45 1-2 * * *', '0 */2 * * 0');
  const zone = fc.constantFrom('Europe/Berlin', 'America/New_York');
  const start = fc.constantFrom('2026-10-24T22:00Z', '2026-11-01T03:00Z', '2027-03-14T05:00Z', '2027-03-27T23:00Z');
  const property = fc.asyncProperty(pattern, zone, start, fc.nat(300), async (text, timezone, day, minutes) => {
    let last = Date.parse(day) + minutes * MINUTE;
    let isFirst = true;
    for (let count = 0; count < 20; count += 1) {
      const next = (await nextTime(cron(text, timezone), last, last)) ?? Number.NaN;
      assert.ok(isFirst ? next > last : next >= last + MINUTE, `${text} ${timezone} ${new Date(last).toISOString()}`);
      isFirst = false;
      last = next;
    }
  });
  await fc.assert(property, { numRuns: 40, endOnFailure: true });
});

test('property: an interval keeps its phase, and its next time is at most one interval away', async () => {
  const property = fc.asyncProperty(
    fc.integer({ min: 1, max: 10_000 }),
    fc.integer({ min: 0, max: 10 ** 12 }),
    fc.integer({ min: 0, max: 10 ** 9 }),
    async (minutes, anchor, passed) => {
      const every = minutes * MINUTE;
      const next =
        (await nextTime({ cron: '', every_ms: every, timezone: 'UTC' }, anchor + passed, anchor)) ?? Number.NaN;
      assert.ok(next > anchor + passed && next <= anchor + passed + every);
      assert.equal((next - anchor) % every, 0);
    },
  );
  await fc.assert(property, { numRuns: 100, endOnFailure: true });
});

test('times that cannot be, never come or come too often are refused by name', async () => {
  const now = Date.UTC(2027, 0, 1);
  const refused: [Timing, number, RegExp][] = [
    [cron('61 * * * *', 'UTC'), MINUTE, /^cron is not a pattern of five fields.*minute: 61/],
    [cron('* * * * * *', 'UTC'), MINUTE, /^cron is not a pattern of five fields/],
    [cron('tomorrow', 'UTC'), MINUTE, /^cron is not a pattern of five fields/],
    [cron('0 0 30 2 *', 'UTC'), MINUTE, /^cron names a time that never comes/],
    [cron('0 8 * * *', 'Mars/Olympus'), MINUTE, /^timezone is not known/],
    [cron('*/5 * * * *', 'UTC'), 10 * MINUTE, /^cron fires more often/],
    [{ cron: '', every_ms: MINUTE, timezone: 'UTC' }, 10 * MINUTE, /^every fires more often/],
  ];
  for (const [timing, least, message] of refused) {
    await assert.rejects(checkTiming(timing, now, least), (error: { details: { reason: string } }) => {
      assert.match(error.details.reason, message);
      return true;
    });
  }
  await checkTiming(cron('0 8 * * MON-FRI', 'Europe/Berlin'), now, MINUTE);
  await checkTiming(cron('*/10 * * * *', 'UTC'), now, 10 * MINUTE);
  assert.equal((await upcomingTimes(cron('0 8 * * *', 'UTC'), now)).length, 5);
});

/** Whether a moment fits the five fields, as the wall clock of the timezone shows it. */
function matcher(fields: readonly string[], timeZone: string): (time: number) => boolean {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    minute: 'numeric',
    hour: 'numeric',
    weekday: 'short',
  });
  const days = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
  return (time) => {
    const parts = Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, value]));
    const [minute = '', hour = '', , , weekday = ''] = fields;
    return (
      fitsField(minute, Number(parts.minute)) &&
      fitsField(hour, Number(parts.hour)) &&
      fitsField(weekday, days.indexOf(String(parts.weekday)))
    );
  };
}

function fitsField(field: string, value: number): boolean {
  if (field === '*') return true;
  return field.startsWith('*/') ? value % Number(field.slice(2)) === 0 : Number(field) === value;
}
