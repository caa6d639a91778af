import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  createFindPlace,
  createSessionRoutes,
  readCallNames,
  readJobNames,
} from '../../../src/bridge/forwarding/session-routes.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createSessionRouteStore } from '../../../src/bridge/storage/instance-and-route-stores.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const session = (name: string) => ({ kind: 'session', name });

test('forwarding: a call tells what it is about', () => {
  const params = { sessionId: 's', threadId: 't', jobId: 'j', idempotencyKey: 'k' };
  const names = (method: string) => readCallNames(method, params);
  assert.deepEqual(names('session.start'), { names: [session('s')], threadId: 't', binds: 'before', makes: true });
  assert.deepEqual(names('session.message'), { names: [session('s')], threadId: 't', binds: 'after', makes: false });
  for (const method of ['session.cancel', 'session.close']) {
    assert.deepEqual(names(method), { names: [session('s')], threadId: 't', binds: 'never', makes: false });
  }
  const submit = { names: [session('s'), { kind: 'job-key', name: 'k' }], threadId: 't', binds: 'before', makes: true };
  assert.deepEqual(names('app.jobs.submit'), submit);
  assert.deepEqual(names('app.jobs.get').names, [{ kind: 'job', name: 'j' }]);
  assert.deepEqual(names('acp.capabilities').names, []);
  assert.deepEqual(readCallNames('session.cancel', { threadId: 't' }).names, []);
  const ofJob = [{ kind: 'job', name: 'j' }, session('s'), { kind: 'jobs', name: 'b' }];
  assert.deepEqual(readJobNames({ jobId: 'j', sessionId: 's' }, 'b'), ofJob);
});

for (const sessionId of [undefined, '', 7, null, {}, 'x'.repeat(257), 'a\0b', '\ud800']) {
  test(`forwarding: a session named ${JSON.stringify(sessionId)?.slice(0, 20)} is refused, not run anywhere`, () => {
    assert.throws(() => readCallNames('session.start', { sessionId }), { code: 'INVALID_PARAMS' });
  });
}

for (const params of [undefined, null, [], 'text', 3]) {
  test(`forwarding: parameters of ${JSON.stringify(params) ?? 'nothing'} name nothing`, () => {
    assert.throws(() => readCallNames('session.message', params), { code: 'INVALID_PARAMS' });
    assert.deepEqual(readCallNames('app.jobs.list', params).names, []);
  });
}

test('forwarding: a job that is run again is the first thing that its submit is about, and names have an end', () => {
  const params = { retryOf: 'job-1', sessionId: 's', idempotencyKey: 'k' };
  assert.deepEqual(
    readCallNames('app.jobs.submit', params).names.map(({ kind, name }) => `${kind} ${name}`),
    ['job job-1', 'session s', 'job-key k'],
  );
  assert.equal(readCallNames('session.start', { sessionId: 'x'.repeat(256) }).names.length, 1);
  assert.throws(() => readCallNames('session.start', { sessionId: 's', threadId: 7 }), {
    code: 'INVALID_PARAMS',
    details: { reason: 'threadId must be a text of at most 256 characters' },
  });
  assert.throws(() => readCallNames('session.start', {}), {
    details: { reason: 'sessionId must have 1 to 256 characters' },
  });
  assert.equal(readCallNames('acp.capabilities', {}).binds, 'never');
  assert.equal(readCallNames('acp.capabilities', {}).makes, true);
  assert.deepEqual(
    [readCallNames('app.jobs.get', { jobId: 'j' }).binds, readCallNames('app.jobs.get', { jobId: 'j' }).makes],
    ['never', false],
  );
});

test('forwarding: a session lives where its route leads, else here while it is open', async () => {
  const [REVIEW, about] = [principalOf('review'), { names: [{ kind: 'session', name: 's' } as const], makes: false }];
  const seen: string[] = [];
  const find = (own: object | undefined, others: object | undefined, route?: { nodeId: string; owner: string }) =>
    createFindPlace({
      localId: 'a',
      routes: { find: async () => route },
      sessions: {
        async find(name: string, owner: string) {
          seen.push(`own ${name} ${owner}`);
          return own;
        },
        async findSeen(name: string) {
          seen.push(`seen ${name}`);
          return others;
        },
      } as never,
    });
  const open = (owner: string) => ({ owner, closed_at: null });
  const closed = (owner: string) => ({ owner, closed_at: 5 });
  const route = { nodeId: 'b', owner: 'review' };
  assert.deepEqual(await find(open('main'), undefined, route)(MAIN, about), route);
  assert.deepEqual(seen, []);
  assert.deepEqual(await find(open('main'), open('review'))(MAIN, about), { nodeId: 'a', owner: 'main' });
  assert.deepEqual(await find(closed('main'), open('review'))(MAIN, about), { nodeId: 'a', owner: 'review' });
  assert.deepEqual(await find(undefined, open('review'))(MAIN, about), { nodeId: 'a', owner: 'review' });
  assert.equal(await find(undefined, open('review'))(MAIN, { ...about, makes: true }), undefined, 'it makes its own');
  assert.equal(await find(undefined, open('main'))(REVIEW, about), undefined, 'it sees its own alone');
  assert.equal(await find(closed('main'), closed('review'))(MAIN, about), undefined);
  assert.equal(await find(undefined, undefined)(MAIN, about), undefined);
  seen.splice(0);
  assert.equal(
    await find(open('main'), open('main'))(MAIN, { names: [{ kind: 'job', name: 'j' }], makes: false }),
    undefined,
  );
  assert.equal(await find(open('main'), open('main'))(MAIN, { names: [], makes: false }), undefined);
  assert.deepEqual(seen, [], 'only sessions are looked for here');
});

const DAY = 24 * 60 * 60 * 1000;
const call = (name: string, makes = false) => ({ names: [{ kind: 'session', name } as const], makes });
const binding = (owner: string, name: string, nodeId: string, threadId = '') => ({
  ...call(name),
  owner,
  nodeId,
  threadId,
});

for (const engine of engines) {
  describe(`on ${engine}`, () => {
    const places = databasePlaces(engine);

    async function open() {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      const clock = createFakeClock();
      const store = createSessionRouteStore(database);
      const errors: unknown[] = [];
      const routes = createSessionRoutes({ store, clock, onError: (error) => errors.push(error) });
      return { clock, store, routes, errors };
    }

    test('B-89: a route is kept for 24 hours after its last use, and no longer', async () => {
      const { clock, routes, store } = await open();
      assert.equal((await routes.bind(binding('main', 's', 'b'), undefined)).nodeId, 'b');
      await clock.advance(DAY - 1000);
      assert.deepEqual(await routes.find(MAIN, call('s')), { nodeId: 'b', owner: 'main' });
      // The use is stored by the way; the next look waits for nothing.
      for (let tries = 0; tries < 200; tries += 1) {
        const row = await store.find({ owner: 'main', kind: 'session', name: 's' }, 0);
        if (row?.used_at === clock.now()) break;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await clock.advance(DAY - 1000);
      assert.equal((await routes.find(MAIN, call('s')))?.nodeId, 'b');
      await routes.stop();
      await clock.advance(2 * DAY);
      assert.equal(await routes.find(MAIN, call('s')), undefined);
      assert.equal(await store.deleteOld(clock.now() - DAY, 10), 1);
    });

    test('forwarding: of two who settle the place of one session the first counts for both', async () => {
      const { routes } = await open();
      const settled = await Promise.all([
        routes.bind(binding('main', 's', 'b'), undefined),
        routes.bind(binding('main', 's', 'c'), undefined),
      ]);
      assert.equal(settled[0]?.nodeId, settled[1]?.nodeId);
      assert.equal(settled.filter(({ usedAt }) => usedAt !== undefined).length, 1, 'one of them has stored it');
      await routes.stop();
    });

    test('forwarding: a route moves on only from the node that it was bound to', async () => {
      const { routes } = await open();
      const first = await routes.bind(binding('main', 's', 'b'), undefined);
      const second = await routes.bind(binding('main', 's', 'c'), first);
      assert.equal(second.nodeId, 'c');
      assert.equal((await routes.bind(binding('main', 's', 'd'), first)).nodeId, 'c');
      assert.equal((await routes.bind(binding('main', 's', 'd'), second)).nodeId, 'd', 'its own has moved with it');
      await routes.stop();
    });

    test('forwarding: a place that a call has stored is given back, and any node may take the session', async () => {
      const { routes } = await open();
      const names = readCallNames('app.jobs.submit', { sessionId: 's', idempotencyKey: 'k' }).names;
      const both = { ...binding('main', 's', 'b'), names };
      await routes.release(both, await routes.bind(both, undefined));
      assert.equal(await routes.find(MAIN, call('s')), undefined);
      assert.equal(await routes.find(MAIN, { names: [{ kind: 'job-key', name: 'k' }], makes: true }), undefined);
      const again = await routes.bind({ ...both, nodeId: 'c' }, undefined);
      assert.equal(again.nodeId, 'c');
      const moved = await routes.bind({ ...both, nodeId: 'd' }, again);
      await routes.release({ ...both, nodeId: 'd' }, moved);
      assert.equal(await routes.find(MAIN, call('s')), undefined);
      await routes.stop();
    });

    test('forwarding: a place that another call has used or moved since is neither given back nor moved', async () => {
      const { routes } = await open();
      const first = await routes.bind(binding('main', 's', 'b'), undefined);
      const other = await routes.bind(binding('main', 's', 'b'), undefined);
      assert.deepEqual([other.nodeId, other.usedAt], ['b', undefined], 'it has only found it');
      await routes.release(binding('main', 's', 'b'), first);
      await routes.release(binding('main', 's', 'b'), other);
      assert.equal((await routes.find(MAIN, call('s')))?.nodeId, 'b');
      assert.equal((await routes.bind(binding('main', 's', 'c'), first)).nodeId, 'b');
      assert.equal((await routes.bind(binding('main', 's', 'c'), other)).nodeId, 'b');
      await routes.stop();
    });

    test('forwarding: an old route that nobody has swept yet does not bind a new session', async () => {
      const { clock, routes } = await open();
      await routes.bind(binding('main', 's', 'b'), undefined);
      await routes.stop();
      await clock.advance(DAY + 1);
      assert.equal((await routes.bind(binding('main', 's', 'c'), undefined)).nodeId, 'c');
    });

    test('B-92: each sees its own routes only, and main those of all, but what main makes is its own', async () => {
      const { routes } = await open();
      await routes.remember(binding('review', 's', 'b'));
      assert.deepEqual(await routes.find(MAIN, call('s')), { nodeId: 'b', owner: 'review' });
      assert.equal(await routes.find(MAIN, call('s', true)), undefined);
      assert.equal(await routes.find(principalOf('node:x'), call('s')), undefined);
      await routes.remember(binding('main', 's', 'c'));
      assert.deepEqual(await routes.find(MAIN, call('s')), { nodeId: 'c', owner: 'main' });
      assert.deepEqual(await routes.find(principalOf('review'), call('s')), { nodeId: 'b', owner: 'review' });
      await routes.stop();
    });

    test('forwarding: the places of a thread are those of the sessions that the caller means, each once', async () => {
      const { routes } = await open();
      await routes.remember(binding('main', 's1', 'b', 't'));
      await routes.remember(binding('main', 's2', 'b', 't'));
      await routes.remember(binding('main', 's3', 'c', 't'));
      await routes.remember(binding('review', 's4', 'c', 't'));
      await routes.remember(binding('main', 't', 'd'));
      const nodes = async (who: Principal) => (await routes.findThread(who, 't')).map(({ nodeId }) => nodeId).sort();
      // Its own come first: those of others are meant only where it has none.
      assert.deepEqual(await nodes(MAIN), ['b', 'c', 'd']);
      await routes.remember(binding('review', 's5', 'e', 'u'));
      assert.deepEqual(
        (await routes.findThread(MAIN, 'u')).map(({ nodeId }) => nodeId),
        ['e'],
      );
      assert.deepEqual(await nodes(principalOf('review')), ['c']);
      await routes.stop();
    });

    test('DB-15: the nodes that have jobs of those whom a caller sees are found, each owner by itself', async () => {
      const { routes } = await open();
      const bound: string[] = [];
      routes.onBound((names) => bound.push(...names.map(({ kind, name }) => `${kind} ${name}`)));
      const jobs = (owner: string, nodeId: string) => ({
        ...{ owner, nodeId, threadId: '' },
        names: [{ kind: 'jobs', name: nodeId } as const],
      });
      await routes.remember(jobs('main', 'b'));
      await routes.remember(jobs('review', 'b'));
      await routes.remember(jobs('review', 'c'));
      const found = async (who: Principal, nodes: readonly string[]) =>
        (await routes.findJobs(who, nodes)).map(({ nodeId, owner }) => `${nodeId} ${owner}`).sort();
      assert.deepEqual(await found(MAIN, ['b', 'c', 'd']), ['b main', 'b review', 'c review']);
      assert.deepEqual(await found(MAIN, ['c']), ['c review']);
      assert.deepEqual(await found(principalOf('review'), ['b', 'c']), ['b review', 'c review']);
      assert.deepEqual(bound, ['jobs b', 'jobs b', 'jobs c']);
      const nothing = await routes.bind({ ...jobs('main', 'z'), names: [] }, undefined);
      assert.deepEqual(nothing, { nodeId: 'z', usedAt: undefined }, 'nothing to bind');
      await routes.stop();
    });

    test('forwarding: a use costs a write once in five minutes, and only sessions belong to a thread', async () => {
      const { clock, routes, store } = await open();
      await routes.remember({
        ...binding('main', 's', 'b', 't'),
        names: readJobNames({ jobId: 'j', sessionId: 's' }, 'b'),
      });
      const threadOf = async (kind: string, name: string) =>
        (await store.find({ owner: 'main', kind, name }, 0))?.thread_id;
      assert.deepEqual([await threadOf('session', 's'), await threadOf('job', 'j')], ['t', '']);
      await routes.stop();
      let writes = 0;
      const touch = async () => {
        writes += 1;
      };
      const noted = createSessionRoutes({ store: { ...store, touch }, clock, onError: assert.fail });
      await clock.advance(5 * 60 * 1000);
      await noted.find(MAIN, call('s'));
      assert.equal(writes, 0);
      await clock.advance(1);
      await noted.find(MAIN, call('s'));
      assert.equal(writes, 1);
      await noted.stop();
    });

    test('forwarding: routes that are too old are deleted in the background', async () => {
      const { clock, routes, store, errors } = await open();
      await routes.remember(binding('main', 's', 'b'));
      clock.stepWall(DAY);
      await clock.advance(10 * 60 * 1000);
      await routes.stop();
      assert.equal(await store.find({ owner: 'main', kind: 'session', name: 's' }, 0), undefined);
      assert.deepEqual(errors, []);
    });
  });
}
