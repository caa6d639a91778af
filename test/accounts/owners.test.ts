import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOwners, MAX_OWNERS } from '../../src/accounts/owners.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

type OwnersOptions = Parameters<typeof createOwners>[0];
type Facts = NonNullable<Awaited<ReturnType<OwnersOptions['store']['facts']>>>;

/** Owners of a store in which everyone is active unless they were paused. */
function start() {
  const paused = new Set<string>();
  const clock = createFakeClock();
  const facts = async (id: string) => {
    const user = { id, role: 'operator', plan: '', active: paused.has(id) ? 0 : 1, closing_at: null };
    return { user, blocked: false, subscriptions: [], teams: [] } as unknown as Facts;
  };
  const told: string[] = [];
  const owners = createOwners({
    store: { facts } as unknown as OwnersOptions['store'],
    settings: () => ({ plans: {}, default_plan: '' }) as unknown as ReturnType<OwnersOptions['settings']>,
    clock,
    freshMs: Number.POSITIVE_INFINITY,
    onError: (error) => assert.fail(String(error)),
  });
  owners.watch(({ id, state }) => void told.push(`${id} ${state}`));
  return { owners, paused, told };
}

test('listeners hear of a pause of someone who was dropped from memory, because their work may still run', async () => {
  const { owners, paused, told } = start();
  for (let index = 0; index <= MAX_OWNERS; index += 1) await owners.ownerOf(`user:usr_${index}`);
  for (const id of ['usr_0', `usr_${MAX_OWNERS}`]) {
    paused.add(`user:${id}`);
    await owners.refresh(id);
  }
  assert.deepEqual(told, ['user:usr_0 paused', `user:usr_${MAX_OWNERS} paused`]);
});

test('listeners hear nothing of a label that is nobody', async () => {
  const { owners, told } = start();
  await owners.refresh('label-of-an-operator');
  assert.deepEqual(told, []);
});
