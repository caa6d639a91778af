import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createJobQueue } from '../../../src/bridge/jobs/job-runner.ts';
import type { JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { waitingJob } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const clock = createFakeClock();

/** A queue over a list of waiting jobs, of which each session offers its first. */
function startQueue(
  given: readonly Partial<JobRow>[],
  changes: Partial<Parameters<typeof createJobQueue>[0]> = {},
  lost: ReadonlySet<string> = new Set(),
) {
  const jobs = given.map((one, index) => waitingJob({ id: `job-${index}`, ...one }));
  const asked: number[] = [];
  const queue = createJobQueue({
    store: {
      find: async (id) => jobs.find((job) => job.id === id),
      async claim(job, instance, now) {
        if (lost.has(job.id)) return undefined;
        jobs.splice(jobs.indexOf(job), 1);
        return { ...job, status: 'running', instance, started_at: now };
      },
    },
    search: {
      async waiting() {
        const names = new Set(jobs.map(({ owner, provider_id }) => `${owner} ${provider_id}`));
        return [...names].toSorted().map((name) => {
          const [owner = '', provider_id = ''] = name.split(' ');
          return { owner, provider_id };
        });
      },
      async nextOfSessions({ owner, provider_id }, now) {
        asked.push(now);
        const own = jobs.filter((job) => job.owner === owner && job.provider_id === provider_id);
        const firsts = own.filter((job) => own.find(({ session_id }) => session_id === job.session_id) === job);
        return firsts.toSorted((one, other) => one.priority - other.priority);
      },
    },
    instance: 'own',
    clock,
    isSessionBusy: () => false,
    ...changes,
  });
  const takeAll = async (hasRoom: (owner: string) => boolean = () => true) => {
    const taken: string[] = [];
    for (let job = await queue.take(hasRoom); job !== undefined; job = await queue.take(hasRoom)) taken.push(job.id);
    return taken;
  };
  return { queue, takeAll, asked };
}

test('a job is taken for this bridge at this moment, and an empty queue leaves nothing behind', async () => {
  const { queue, asked } = startQueue([{}]);
  assert.equal(queue.hasLeft(), false);
  const job = await queue.take(() => true);
  assert.deepEqual([job?.id, job?.instance, job?.started_at], ['job-0', 'own', clock.now()]);
  assert.equal(queue.hasLeft(), true, 'there was one when it was taken');
  assert.equal(await queue.take(() => true), undefined);
  assert.equal(queue.hasLeft(), false);
  assert.deepEqual(asked, [clock.now()]);
});

test('owners take turns, and the agents of each owner do', async () => {
  const { takeAll } = startQueue([
    { id: 'a1', owner: 'a', provider_id: 'one' },
    { id: 'a2', owner: 'a', provider_id: 'one' },
    { id: 'a3', owner: 'a', provider_id: 'two' },
    { id: 'b1', owner: 'b', provider_id: 'one' },
    { id: 'b2', owner: 'b', provider_id: 'two' },
    { id: 'c1', owner: 'c', provider_id: 'one' },
  ]);
  assert.deepEqual(await takeAll(), ['a1', 'b1', 'c1', 'a3', 'b2', 'a2']);
});

test('a higher priority goes before the turn of the agents', async () => {
  const { takeAll } = startQueue([
    { id: 'low', provider_id: 'one', priority: 2 },
    { id: 'normal', provider_id: 'two', priority: 1 },
    { id: 'high', provider_id: 'two', priority: 0 },
  ]);
  assert.deepEqual(await takeAll(), ['high', 'normal', 'low']);
});

test('an owner without room waits, and others go on', async () => {
  const { queue, takeAll } = startQueue([
    { id: 'a1', owner: 'a' },
    { id: 'b1', owner: 'b' },
  ]);
  assert.deepEqual(await takeAll((owner) => owner !== 'a'), ['b1']);
  assert.equal(queue.hasLeft(), true);
  assert.deepEqual(await takeAll(), ['a1']);
});

test('a member of a team without room waits, though the team has room', async () => {
  const { takeAll } = startQueue([
    { id: 'first', owner: 'team:t', member: 'user:busy' },
    { id: 'second', owner: 'team:t', member: 'user:free' },
  ]);
  assert.deepEqual(await takeAll((owner) => owner !== 'user:busy'), ['second']);
  assert.deepEqual(await takeAll(), ['first']);
});

test('a job whose session is busy here, or on another bridge, is passed over', async () => {
  const given = [
    { id: 'first', session_id: 's', owner: 'a' },
    { id: 'second', owner: 'a' },
  ];
  const names: string[] = [];
  const isS = (owner: string, sessionId: string) => {
    names.push(`${owner} ${sessionId}`);
    return sessionId === 's';
  };
  const busy = startQueue(given, { isSessionBusy: isS });
  assert.deepEqual(await busy.takeAll(), ['second']);
  assert.equal(busy.queue.hasLeft(), true);
  assert.deepEqual(names.slice(0, 2), ['a s', 'a second']);
  const elsewhere = startQueue(given, { isSessionElsewhere: async (owner, sessionId) => isS(owner, sessionId) });
  assert.deepEqual(await elsewhere.takeAll(), ['second']);
});

test('a job that waits for its next try, is gone, or was claimed by another bridge is passed over', async () => {
  const later = startQueue([
    { id: 'later', retry_at: clock.now() + 1000 },
    { id: 'now', retry_at: clock.now() },
  ]);
  assert.deepEqual(await later.takeAll(), ['now']);
  const claimed = startQueue([{ id: 'lost' }, { id: 'left' }], {}, new Set(['lost']));
  assert.deepEqual(await claimed.takeAll(), ['left']);
  const gone = startQueue([{ id: 'gone' }], { store: { find: async () => undefined, claim: async (job) => job } });
  assert.equal(await gone.queue.take(() => true), undefined);
});

test('whose job could not be taken keeps the turn', async () => {
  let isBusy = true;
  const { queue } = startQueue(
    [
      { id: 'a1', owner: 'a' },
      { id: 'b1', owner: 'b' },
      { id: 'b2', owner: 'b' },
    ],
    { isSessionBusy: (owner) => isBusy && owner === 'a' },
  );
  assert.equal((await queue.take(() => true))?.id, 'b1');
  isBusy = false;
  assert.equal((await queue.take(() => true))?.id, 'a1');
  assert.equal((await queue.take(() => true))?.id, 'b2');
});
