import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { PeerAnswer } from '../../../src/bridge/forwarding/call-node.ts';
import { createCancelWaiting, type RelayTarget, type SessionOwners } from '../../../src/bridge/instances/relay-call.ts';
import {
  createOwnerDispatch,
  createViaOwner,
  type OwnerDispatchOptions,
  servePatiently,
  serveRelayed,
} from '../../../src/bridge/instances/session-owners.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import type { SessionRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { pause } from '../../../src/platform/clock/clock.ts';
import { AppError, errorCode } from '../../../src/platform/errors/app-error.ts';
import { toJsonText } from '../../../src/platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { callOf } from '../../faults/simulation/bridge/played-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const NO_RESUME = { afterSeq: undefined, idempotencyKey: '' };
const REFUSED = { kind: 'failed', reason: 'nothing listens at its address', outcome: 'not_started' } as PeerAnswer;
const CUT_OFF = { kind: 'failed', reason: 'the connection was closed', outcome: 'unknown' } as PeerAnswer;
const SERVED = { kind: 'result', result: 'served there' } as PeerAnswer;

/** A call whose session another instance has, which answers as `script` says and then as its last entry does. */
function callElsewhere(script: readonly PeerAnswer[], mayRepeat: boolean) {
  const clock = createFakeClock();
  let asked = 0;
  const owners = {
    ofRow: async () => ({ id: 'other', address: 'http://127.0.0.1:1' }) as RelayTarget,
    isTaken: () => false,
  } as Partial<SessionOwners> as SessionOwners;
  const viaOwner = createViaOwner({
    owners,
    clock,
    stopped: new AbortController().signal,
    onFailure: () => undefined,
  });
  const answer = viaOwner({
    find: async () => ({ key: 's', closed_at: null }) as SessionRow,
    ask: async () => script[Math.min(asked++, script.length - 1)] as PeerAnswer,
    answered: (result) => result,
    here: () => assert.fail('another instance has the session'),
    repeat: mayRepeat ? () => undefined : undefined,
  }).catch((error: unknown) => errorCode(error));
  return { clock, answer, asked: () => asked };
}

test('an instance that is listed and does not listen yet is asked again until it does', async () => {
  for (const mayRepeat of [true, false]) {
    const { clock, answer, asked } = callElsewhere([REFUSED, REFUSED, REFUSED, SERVED], mayRepeat);
    await clock.advance(2_000);
    assert.equal(await answer, 'served there');
    assert.equal(asked(), 4);
  }
});

test('an instance that stays away is reported after some seconds', async () => {
  const { clock, answer } = callElsewhere([REFUSED], true);
  let said: unknown;
  void answer.then((value) => (said = value));
  await clock.advance(4_000);
  assert.equal(said, undefined);
  await clock.advance(2_000);
  assert.equal(said, 'OWNER_UNREACHABLE');
});

test('a call that may have been served is not asked again unless it may be repeated', async () => {
  const { answer, asked } = callElsewhere([CUT_OFF, SERVED], false);
  assert.equal(await answer, 'OWNER_UNREACHABLE');
  assert.equal(asked(), 1);
  const repeated = callElsewhere([REFUSED, CUT_OFF, REFUSED, SERVED], true);
  await repeated.clock.advance(3_000);
  assert.equal(await repeated.answer, 'served there');
});

/** Sessions of which `taken` says, look by look, whether another instance has them; the last entry counts on. */
function instanceThatLooks(taken: readonly boolean[], options: Partial<OwnerDispatchOptions> = {}) {
  const log: string[] = [];
  let looks = 0;
  const row = { key: 's', owner: MAIN.id, session_id: 's', instance: '', closed_at: null } as SessionRow;
  const isTaken = () => taken[Math.min(looks, taken.length) - 1] === true;
  const owners = {
    async find() {
      looks += 1;
      log.push('look');
      return row;
    },
    async inThread() {
      looks += 1;
      log.push('look');
      return [row];
    },
    ofRow: async () => (isTaken() ? { id: 'other', address: 'http://127.0.0.1:1' } : undefined),
    isTaken,
  } as Partial<SessionOwners> as SessionOwners;
  const common = {
    owners,
    clock: createFakeClock(),
    stopped: new AbortController().signal,
    onFailure: () => undefined,
  };
  const here = async ({ method }: Pick<MethodCall<BridgeClient>, 'method'>) => {
    log.push(`${method} here`);
    return { accepted: true };
  };
  const dispatch = createOwnerDispatch(
    {
      ...common,
      relay: {
        async ask(_target, { method }) {
          log.push(`${method} there`);
          return { kind: 'result', result: { accepted: true } };
        },
      },
      isBusyHere: () => true,
      doubt: () => undefined,
      endJobs: async () => undefined,
      feeds: () => undefined,
      viaOwner: createViaOwner(common),
      ...options,
    },
    here,
  );
  const client = { caller: { principal: MAIN }, sink: undefined, stays: false, resume: NO_RESUME };
  const made = (method: string, params: object = { sessionId: 's' }) => callOf(client, { method, params });
  return {
    log,
    async call(method: string, params?: object): Promise<unknown> {
      return JSON.parse(toJsonText(await dispatch(made(method, params))));
    },
    relayed: (method: string) => serveRelayed(owners, made(method), here),
  };
}

const ACCEPTED = { accepted: true };

test('a cancel is done here and then asked of the instance that has taken the session', async () => {
  const taken = instanceThatLooks([true]);
  assert.deepEqual(await taken.call('session.cancel'), ACCEPTED);
  assert.deepEqual(taken.log, ['session.cancel here', 'look', 'session.cancel there']);
  const own = instanceThatLooks([false]);
  assert.deepEqual(await own.call('session.cancel'), ACCEPTED);
  assert.deepEqual(own.log, ['session.cancel here', 'look']);
});

test('a cancel by an instance that was frozen between its look and what it did is asked of the next owner', async () => {
  const frozen = instanceThatLooks([false, true], { isBusyHere: () => false });
  assert.deepEqual(await frozen.call('session.cancel'), ACCEPTED);
  assert.deepEqual(frozen.log, ['look', 'session.cancel here', 'look', 'session.cancel there']);
  const asked = instanceThatLooks([false, true]);
  await assert.rejects(asked.relayed('session.cancel'), { code: 'NOT_OWNER' });
  const kept = instanceThatLooks([false]);
  assert.deepEqual(await kept.relayed('session.cancel'), ACCEPTED);
});

test('a cancel of a thread reaches those of its sessions that another instance has taken', async () => {
  const { call, log } = instanceThatLooks([true]);
  assert.deepEqual(await call('session.cancel', { threadId: 't' }), ACCEPTED);
  assert.deepEqual(log, ['session.cancel here', 'look', 'look', 'session.cancel there']);
});

test('where no instance has a turn of a session, those that may wait elsewhere end with it, before a close and after a cancel', async () => {
  const calls: [string, object][] = [
    ['session.cancel', { sessionId: 's' }],
    ['session.cancel', { threadId: 't' }],
    ['session.close', { sessionId: 's' }],
    ['session.close', { threadId: 't' }],
  ];
  for (const [method, params] of calls) {
    const { call, log } = instanceThatLooks([false], {
      isBusyHere: () => false,
      cancelWaiting: async () => void log.push('others'),
    });
    assert.deepEqual(await call(method, params), ACCEPTED);
    const done = log.filter((one) => one !== 'look');
    assert.deepEqual(done, method === 'session.close' ? ['others', `${method} here`] : [`${method} here`, 'others']);
  }
});

test('a call that ends a session asks the other instances, and is refused where one does not answer', async () => {
  const unreachable = { ...CUT_OFF, isDown: false } as PeerAnswer;
  const gone = { ...REFUSED, isDown: true } as PeerAnswer;
  for (const [answers, code] of [
    [[SERVED, gone], ''],
    [[SERVED, unreachable], 'OWNER_UNREACHABLE'],
  ] as const) {
    const left = [...answers];
    const cancelWaiting = createCancelWaiting({
      owners: { others: async () => answers.map((_, index) => ({ id: `${index}`, address: 'http://127.0.0.1:1' })) },
      relay: { ask: async () => left.shift() as PeerAnswer },
      clock: createFakeClock(),
      stopped: new AbortController().signal,
    });
    const client = { caller: { principal: MAIN }, sink: undefined, stays: false, resume: NO_RESUME };
    const asked = cancelWaiting(callOf(client, { method: 'session.cancel', params: { sessionId: 's' } }));
    assert.equal(await asked.then(() => '', errorCode), code);
    assert.equal(left.length, 0);
  }
});

test('work that takes long for another instance sends the head of its response before that one gives up', async () => {
  for (const [ms, accepted] of [
    [5_000, 0],
    [25_000, 1],
  ] as const) {
    const clock = createFakeClock();
    const noted: number[] = [];
    const done = servePatiently({ accept: () => void noted.push(ms) }, clock, () => pause(clock, ms));
    await clock.advance(60_000);
    await done;
    assert.equal(noted.length, accepted);
  }
});

test('a message waits until an instance that was frozen knows whether it still has the session', async () => {
  for (const isTaken of [true, false]) {
    const known = Promise.withResolvers<void>();
    const { call, log } = instanceThatLooks([isTaken], { doubt: () => known.promise });
    const answer = call('session.message');
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(log, []);
    known.resolve();
    await answer;
    assert.deepEqual(log, ['look', `session.message ${isTaken ? 'there' : 'here'}`]);
  }
  const sure = instanceThatLooks([true]);
  await sure.call('session.message');
  assert.deepEqual(sure.log, ['session.message here'], 'no look where nothing can have been taken');
});

test('the end of a session that another instance has taken is asked of that one, and a turn is refused', async () => {
  const asked: string[] = [];
  const clock = createFakeClock();
  const owners = {
    find: async () => ({ key: 's', closed_at: null }) as SessionRow,
    ofRow: async () => ({ id: 'other', address: 'http://127.0.0.1:1' }) as RelayTarget,
    isTaken: () => true,
  } as Partial<SessionOwners> as SessionOwners;
  const common = { owners, clock, stopped: new AbortController().signal, onFailure: () => undefined };
  const dispatch = createOwnerDispatch(
    {
      ...common,
      relay: {
        async ask(_target, { method }) {
          asked.push(method);
          return { kind: 'result', result: { accepted: true } };
        },
      },
      isBusyHere: () => true,
      doubt: () => undefined,
      endJobs: async () => undefined,
      feeds: () => undefined,
      viaOwner: createViaOwner(common),
    },
    async () => {
      throw new AppError('SESSION_BUSY');
    },
  );
  const client = { caller: { principal: MAIN }, sink: undefined, stays: false, resume: NO_RESUME };
  const call = (method: string) => dispatch(callOf(client, { method, params: { sessionId: 's' } })) as Promise<unknown>;
  await call('session.close');
  await call('session.cancel');
  await assert.rejects(call('session.message'), { code: 'SESSION_BUSY' });
  assert.deepEqual(asked, ['session.close', 'session.cancel']);
});
