import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRelaySignatures } from '../../src/bridge/instances/relay-call.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import type { SecretKeys } from '../../src/platform/secrets/secret-keys.ts';

const KEY: SecretKeys = [new Uint8Array(32).fill(1)];
const REQUEST = { method: 'POST', path: '/acp/relay', body: 'hello', target: 'ins_a' } as const;

/** Both sides of a request, with a database and a process clock that tests set. */
function sides({ keys = KEY, instance = 'ins_a' }: { readonly keys?: SecretKeys; readonly instance?: string } = {}) {
  const time = { database: 1_000_000, monotonic: 0 };
  const make = (own: string, of: SecretKeys) =>
    createRelaySignatures({
      keys: of,
      instance: own,
      databaseNow: () => time.database,
      clock: { monotonic: () => time.monotonic },
      randomness: systemRandomness,
    });
  return { time, sender: make('ins_b', KEY), receiver: make(instance, keys) };
}

const headOf = (headers: Readonly<Record<string, string>>, path: string = REQUEST.path, method = 'POST') => ({
  method,
  path,
  headers,
});
const refusedFor = (reason: RegExp) => (error: unknown) => {
  const { code, details } = error as { readonly code?: string; readonly details?: { readonly reason?: string } };
  return code === 'RELAY_REFUSED' && reason.test(details?.reason ?? '');
};

test('Accept what another instance has signed, with the body that it has signed', () => {
  const { sender, receiver } = sides();
  const signed = receiver.check(headOf(sender.sign(REQUEST)));
  signed.checkBody(Buffer.from('hello'));
  assert.throws(() => signed.checkBody(Buffer.from('hallo')), refusedFor(/body was changed/));
});

test('Refuse a forged signature, another key, another path and another method', () => {
  const { sender, receiver } = sides();
  const headers = sender.sign(REQUEST);
  const forged = { 'x-trestle-relay': headers['x-trestle-relay']?.replace('ins_a', 'ins_c') ?? '' };
  assert.throws(() => receiver.check(headOf(forged)), refusedFor(/signature/));
  assert.throws(() => receiver.check(headOf({})), refusedFor(/signature/));
  assert.throws(() => receiver.check(headOf(headers, '/acp/relay/artifacts/art_1')), refusedFor(/signature/));
  assert.throws(() => receiver.check(headOf(headers, REQUEST.path, 'GET')), refusedFor(/signature/));
  const stranger = sides({ keys: [new Uint8Array(32).fill(2)] }).receiver;
  assert.throws(() => stranger.check(headOf(headers)), refusedFor(/signature/));
  receiver.check(headOf(headers));
});

test('Refuse a request for another instance, and one for an earlier start of this one', () => {
  const { sender, receiver } = sides({ instance: 'ins_later' });
  assert.throws(() => receiver.check(headOf(sender.sign(REQUEST))), refusedFor(/another instance/));
});

test('Refuse a request that is repeated, for as long as it would count', () => {
  const { time, sender, receiver } = sides();
  const headers = sender.sign(REQUEST);
  receiver.check(headOf(headers));
  assert.throws(() => receiver.check(headOf(headers)), refusedFor(/sent before/));
  time.database += 29_999;
  time.monotonic += 29_999;
  assert.throws(() => receiver.check(headOf(headers)), refusedFor(/sent before/));
});

test('Refuse a request that is more than 30 seconds old, or from the future', () => {
  const { time, sender, receiver } = sides();
  const old = sender.sign(REQUEST);
  time.database += 30_001;
  assert.throws(() => receiver.check(headOf(old)), refusedFor(/time has passed/));
  const ahead = sender.sign(REQUEST);
  time.database -= 30_001;
  assert.throws(() => receiver.check(headOf(ahead)), refusedFor(/time has passed/));
});

test('Accept a request of an instance that still has the key before a rotation', () => {
  const { sender, receiver } = sides({ keys: [new Uint8Array(32).fill(2), ...KEY] });
  receiver.check(headOf(sender.sign(REQUEST)));
});
