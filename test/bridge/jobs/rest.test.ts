import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createRest } from '../../../src/bridge/jobs/job-ends.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

function openRest(options: { readonly isShared: boolean } = { isShared: true }) {
  const clock = createFakeClock();
  const sent: string[] = [];
  const asked: number[] = [];
  const state = { hasWork: false, isListening: true, whileAsked: () => {} };
  let listener: (subject: string) => void = () => {};
  const rest = createRest({
    ...options,
    clock,
    search: {
      async hasWork(before) {
        asked.push(before - clock.now());
        state.whileAsked();
        return state.hasWork;
      },
    },
    wakeUps: {
      send: (_topic, subject) => void sent.push(subject),
      on(_topic, given) {
        listener = given;
      },
      isListening: () => state.isListening,
      stop: async () => undefined,
    },
  });
  return { clock, rest, state, sent, asked, receive: (subject: string) => listener(subject) };
}

describe('the rest of a bridge without jobs', () => {
  test('goes on without a statement, and asks once every 15 seconds', async () => {
    const { clock, rest, asked } = openRest();
    assert.equal(await rest.goesOn(), false, 'the first look is a whole one');
    await rest.begin();
    for (let second = 0; second < 60; second += 1) {
      await clock.advance(1000);
      assert.equal(await rest.goesOn(), true);
    }
    assert.deepEqual(asked, Array(5).fill(30_000));
  });

  test('does not begin while there is work, and ends when the look after 15 seconds finds some', async () => {
    const { clock, rest, state } = openRest();
    state.hasWork = true;
    await rest.begin();
    assert.equal(await rest.goesOn(), false);
    state.hasWork = false;
    await rest.begin();
    state.hasWork = true;
    await clock.advance(15_000);
    assert.equal(await rest.goesOn(), false);
  });

  test('ends with work of this bridge, which the others hear of, and with that of others', async () => {
    const { rest, sent, receive } = openRest();
    await rest.begin();
    rest.end();
    assert.equal(await rest.goesOn(), false);
    const [message = ''] = sent;
    assert.equal(sent.length, 1);
    await rest.begin();
    receive(message);
    assert.equal(await rest.goesOn(), false);
    assert.equal(sent.length, 1, 'a message is not answered by another');
  });

  test('does not begin when work was added while the store was asked', async () => {
    const { rest, state } = openRest();
    state.whileAsked = rest.end;
    assert.equal(await rest.begin(), false);
    assert.equal(await rest.goesOn(), false);
  });

  test('ends while messages do not arrive; afterwards the others get the message again', async () => {
    const { rest, state, sent, receive } = openRest();
    await rest.begin();
    state.isListening = false;
    assert.equal(await rest.goesOn(), false);
    state.isListening = true;
    receive('');
    assert.deepEqual([await rest.goesOn(), sent.length], [false, 1]);
  });

  test('ends when the clock was set back; SQLite needs no messages', async () => {
    const { clock, rest, state } = openRest({ isShared: false });
    state.isListening = false;
    await rest.begin();
    assert.equal(await rest.goesOn(), true);
    clock.stepWall(-60_000);
    assert.equal(await rest.goesOn(), false);
  });

  test('does not begin if the clock was set back while work was looked for', async () => {
    const { clock, rest } = openRest({ isShared: false });
    const since = clock.now();
    clock.stepWall(-60_000);
    await rest.begin(since);
    assert.equal(await rest.goesOn(), false);
    await rest.begin(clock.now());
    assert.equal(await rest.goesOn(), true);
  });
});
