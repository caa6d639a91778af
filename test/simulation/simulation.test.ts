import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { readFile, rm } from 'node:fs/promises';
import { test } from 'node:test';
import type { Scenario } from '../faults/simulation/scenario.ts';
import { playOnce, SCENARIOS, simulationFaults } from '../faults/simulation/simulation.ts';

const FIRST_SEED = 20_000;
const SEEDS = 6;
/** Runs that found a fault once, of the program or of its checker. */
const FOUND = [
  // The beginning of a turn could not be stored, and updates of it were shown; or its session was busy until a restart.
  ['sessions', 19],
  ['sessions', 48],
  ['sessions', 60],
  ['sessions', 158],
  // A turn that was being taken back was said to be unknown when its call was repeated, and was there after a crash.
  ['sessions', 908_300],
  // The end of a permission request could not be stored, and the request stayed open.
  ['permissions', 1],
  ['permissions', 19],
  // Of the checker: a request whose turn was taken back goes with its session.
  ['permissions', 300_237],
  // The end of a job whose time was up met a busy store, was not tried again, and the job counted as cancelled.
  ['jobs', 300_333],
  ['jobs', 300_355],
  // The same while the bridge stopped: at the next start the turn, which the timeout had cancelled, counted as cancelled by a caller.
  ['jobs', 701_126],
  // A new password forgets the guesses at the old one, wherever they came from.
  ['accounts', 154],
  // Of the checker: the password was changed while a login with it was under way.
  ['accounts', 705_318],
  // Of the checker: failures while a login was under way had locked the account, and those during the lock were not counted.
  ['accounts', 900_297],
  // Of the checker: a login and the end of all other sessions in the same millisecond.
  ['accounts', 906_868],
  // Followed before it starts: updates that wait for the store had been counted as seen.
  ['sessions', 3],
  ['sessions', 12],
  // A turn that waited was stored after its session was taken, and ended without an update.
  ['instances', 16],
  ['instances', 21],
  // A connection that asked for the end of a session while a wake-up came got all of it once more.
  ['instances', 28],
  // What was written about a session before it was taken was stored when the session was back.
  ['instances', 157],
  // The updates of a relayed call came over the same connection twice.
  ['instances', 175],
  ['instances', 1024],
  // An agent that said nothing never learned that its session was taken, and a call to cancel it met nobody else.
  ['instances', 207],
  // Who followed a session that another instance took heard no more of it.
  ['instances', 223],
  // The beginning of a turn was taken back, and the epoch that it had made was taken for that of another instance.
  ['instances', 545],
  ['instances', 820],
  ['instances', 964],
  // A session that was waited for was started by an instance that had gone when the session was found.
  ['instances', 281],
  ['instances', 1064],
  // The updates of a session that a relayed call started came by that call, and to its follower once more.
  ['instances', 633],
  // A message waited for a session that another instance had started by then: it was refused as if there were none.
  ['instances', 1209],
  // An instance could not store its last updates, and a follower elsewhere got those after them.
  ['instances', 1416],
  // The end of a turn that another instance had stored could not be read, and followers got no end.
  ['instances', 2316],
  // A session stayed with an instance while others ended its turns, and the instance went on with them.
  ['instances', 5190],
  // A call brought its updates to a connection that had yet to get those of another instance.
  ['instances', 2976],
  // Of the checker: what instances answer overtakes what others send, and a process may be frozen while it stops.
  ['instances', 1911],
  ['instances', 3185],
  ['instances', 2708],
  // Of the checker: a message that waited for a new start, which came to nothing, was refused before the start was answered.
  ['instances', 5124],
  ['instances', 7249],
  ['instances', 10446],
  // A turn that waited in a session which another instance took ended without an update.
  ['instances', 7293],
  // A connection waited for a session that began elsewhere, called a turn of it here, and then got the session from its start.
  ['instances', 7380],
  ['instances', 7642],
  // The beginning of a session was taken back, and a connection to another instance followed that session for ever.
  ['instances', 12_215],
  // A relayed call that was gone on with here sent the end of its turn to a connection that had it already.
  ['instances', 16_184],
  // Two callers share the most failures of a target.
  ['attempts', 243],
  ['attempts', 264],
  // Of the checker: a process counts the slots of its window from its own start.
  ['attempts', 706_528],
  // Of the checker: a call and the fallback that it went on with each waited for an alarm of another call.
  ['attempts', 906_234],
  // A beginning that may have been stored was taken back after another instance had ended its turn and told of that.
  ['instances', 17944],
  // A turn was ended for a dead instance, and nobody who followed its session was told.
  ['instances', 15625],
  ['instances', 20107],
  ['instances', 20347],
  // The same for those who follow it by the stream of its owner.
  ['instances', 20728],
  // Updates were stored elsewhere between what a follower was read and what came to it at the same time.
  ['instances', 20083],
  // Two instances began a session of one name: one of them did not know a turn that the other had stored.
  ['instances', 23234],
  ['instances', 23634],
  // A session was closed by an instance whose session another one had taken, and the turn of that one went on for ever.
  ['instances', 31_978],
  // After a close a connection to another instance did not follow the session that was started in its place.
  ['instances', 32_588],
  // A beginning that was being taken back was read from the store, believed, and followed for ever.
  ['instances', 33_439],
  ['instances', 40_630],
  // A bridge that was frozen got a session back: what another had stored of it was not sent to those who followed it here.
  ['instances', 66_172],
  // A close that was stored twice, for lack of an answer, deleted the turn that had begun in between.
  ['instances', 70_996],
  // What was read for a follower whose session had not begun here was sent twice.
  ['instances', 73_272],
  // A session was taken back and started again: clients of another instance got it from their own call on.
  ['instances', 78_709],
  ['instances', 83_369],
] as const;

for (const scenario of SCENARIOS) {
  test(`nothing is violated in some runs of ${scenario.name}, and the same seed gives the same run to the letter`, async () => {
    const logs = new Set<string>();
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
      const { log, violations } = await playOnce(scenario, seed);
      assert.deepEqual(violations, [], `seed ${seed}`);
      const text = JSON.stringify(log);
      logs.add(text);
      // In between another seed was played: nothing is left of it.
      await playOnce(scenario, seed + SEEDS);
      assert.equal(JSON.stringify((await playOnce(scenario, seed)).log), text, `seed ${seed} was another run`);
    }
    assert.equal(logs.size, SEEDS, 'each seed is a run of its own');
  });
}

/** What a run may wait for: its own promises and turns of the event loop. Keys are derived at once; the name is Node's. */
const PLAYED_RESOURCES: ReadonlySet<string> = new Set(['PROMISE', 'Immediate', 'TickObject', 'DERIVEBITSREQUEST']);

// Otherwise the same seed gives another run on a busy machine.
test('no run waits for the disk, the network or real time', async () => {
  for (const scenario of SCENARIOS) {
    const others = new Set<string>();
    const hook = createHook({ init: (_id, type) => void (PLAYED_RESOURCES.has(type) || others.add(type)) }).enable();
    try {
      for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) await playOnce(scenario, seed);
    } finally {
      hook.disable();
    }
    assert.deepEqual([...others], [], scenario.name);
  }
});

test('what a seed has found once stays closed', async () => {
  for (const [name, seed] of FOUND) {
    const scenario = SCENARIOS.find((one) => one.name === name);
    assert.ok(scenario);
    assert.deepEqual((await playOnce(scenario, seed)).violations, [], `${name}, seed ${seed}`);
  }
});

test('a run that fails is reported with its seed, its scenario, and the command that plays it again', async () => {
  const wrong: Scenario = {
    name: 'wrong',
    play: async (seed) => ({ log: [{ seed }], violations: seed === 7 ? ['it broke'] : [], counts: { steps: 2 } }),
  };
  const said: string[] = [];
  const suite = simulationFaults([wrong]);
  const { violations, figures } = await suite({ cycles: 3, seed: 6, say: (line) => void said.push(line) });
  assert.deepEqual(violations, ['seed 7, wrong: it broke (again: npm run faults -- simulation --cycles 1 --seed 7)']);
  assert.deepEqual(
    figures.map(({ name, value, met }) => [name, value, met]),
    [
      ['seeds', '3', true],
      ['wrong: steps', '6', true],
      ['runs in which something did not hold', '1', false],
    ],
  );
  const [, file = ''] = /^the log is (.*simulation-wrong-7.*)$/m.exec(said.join('\n')) ?? [];
  assert.equal(await readFile(file, 'utf8'), '{"seed":7}\n');
  await rm(file);
});
