import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseSource } from './architecture/source-file.ts';
import { proxyNodesScenario } from './faults/store-calls/accounts/proxy-nodes-scenario.ts';
import { breakDatabases, isChange } from './faults/store-calls/broken-database.ts';
import {
  type BrokenRun,
  checkRun,
  checkSites,
  figuresOf,
  type Operation,
} from './faults/store-calls/check-operations.ts';
import { checkSteps, LATE, type StepOperation } from './faults/store-calls/check-steps.ts';
import { planFaults } from './faults/store-calls/plan-faults.ts';
import { playScenario } from './faults/store-calls/play-scenario.ts';
import type { Scenario } from './faults/store-calls/scenario.ts';
import { SERVICES, sharedCallSites, sitesIn, storeCallSites } from './faults/store-calls/store-call-sites.ts';

const granted: StepOperation = {
  kind: 'step',
  name: 'it',
  attempt: 1,
  outcome: 'ok',
  code: '',
  failedCalls: 0,
  problems: [],
  stored: 'whole',
};
const unknown: StepOperation = { ...granted, outcome: 'unknown', code: 'storage_unavailable', failedCalls: 1 };
const again = (changes: Partial<StepOperation>): StepOperation => ({ ...granted, attempt: 2, ...changes });

test('what is granted, or granted when it is asked for again, is no violation', () => {
  assert.deepEqual(checkSteps([granted, unknown, again({}), granted]), []);
  assert.deepEqual(checkSteps([{ ...unknown, stored: 'none' }, again({})]), []);
  const taken = { code: 'taken', whenDone: ['taken'] };
  assert.deepEqual(
    checkSteps([{ ...unknown, ...taken, code: unknown.code }, again({ ...taken, outcome: 'fail' })]),
    [],
  );
});

test('an answer without its effect, half an effect, and an effect of a refusal are violations', () => {
  assert.deepEqual(checkSteps([{ ...granted, stored: 'none' }]), ['it was answered and is not stored']);
  assert.deepEqual(checkSteps([{ ...unknown, stored: 'half' }, again({})]), ['it was done by half']);
  const refused = { ...granted, outcome: 'fail', code: 'taken' } as const;
  assert.deepEqual(checkSteps([refused]), ['it was refused with taken, and is stored']);
  assert.deepEqual(checkSteps([{ ...refused, stored: 'none' }]), ['it was refused with taken']);
});

test('who cannot get through after the failure, or is refused though nothing was done before, is reported', () => {
  const shut = 'it did not succeed when it was tried again';
  assert.deepEqual(checkSteps([unknown, { ...unknown, attempt: 2 }]), [shut]);
  const taken = { outcome: 'fail', code: 'taken', whenDone: ['taken'], stored: 'none' } as const;
  const never = [{ ...unknown, stored: 'none' } as const, again(taken)];
  assert.deepEqual(checkSteps(never), ['it was refused with taken']);
  const late = { ...unknown, code: LATE, failedCalls: 0 };
  assert.deepEqual(checkSteps([late, again({})]), [], 'a machine with too much to do');
  const idle = { ...unknown, failedCalls: 0 };
  assert.deepEqual(checkSteps([idle, again({})]), ['it got storage_unavailable, and the store had not failed']);
});

test('what is to be refused must be refused as it is said, also after a failure, and leave nothing', () => {
  const refused = { ...granted, refusal: 'used', outcome: 'fail', code: 'used', stored: 'none' } as const;
  assert.deepEqual(checkSteps([refused, { ...refused, ...unknown, stored: 'none' }, { ...refused, attempt: 2 }]), []);
  const let_in = 'it was granted, and was to be refused with used';
  assert.deepEqual(checkSteps([{ ...refused, outcome: 'ok', code: '' }]), [let_in]);
  assert.deepEqual(checkSteps([{ ...refused, code: 'other' }]), ['it was refused with other instead of used']);
  assert.deepEqual(checkSteps([{ ...refused, stored: 'whole' }]), ['it was to be refused with used, and is stored']);
});

test('an answer that is not as documented, an uncaught error, a wrong fact and a scenario cut short are violations', () => {
  const operations: readonly Operation[] = [
    { ...granted, problems: ['a secret is in the answer'] },
    { kind: 'fact', name: 'users', wanted: [1], found: [1] },
    { kind: 'fact', name: 'users', wanted: [1], found: [2] },
    { kind: 'uncaught', error: 'Error: boom' },
    { kind: 'ended', error: 'Error: late' },
  ];
  assert.deepEqual(checkRun({ operations }), [
    'it: a secret is in the answer',
    'users: [2] instead of [1]',
    'nobody has caught Error: boom',
    'it could not go on: Error: late',
  ]);
});

test('places that never failed are a figure that was missed, and a place that is not counted is a violation', () => {
  const run: BrokenRun = {
    service: 'accounts',
    scenario: 'one',
    broken: { which: { site: 'a.ts:1 (write)', nth: 1 }, when: 'before' },
    brokenSites: ['a.ts:1 (write)'],
    sites: ['a.ts:1 (write)', 'b.ts:2 (read)'],
    operations: [],
  };
  const other = { ...run, brokenSites: ['b.ts:2 (read)'] };
  const places = (runs: readonly BrokenRun[]) => {
    const figure = figuresOf(runs, { accounts: run.sites }).find(({ goal }) => goal === 'all');
    return [figure?.value, figure?.met];
  };
  assert.deepEqual(places([run]), ['1 of 2', false]);
  assert.deepEqual(places([run, other]), ['2 of 2', true]);
  assert.deepEqual(checkSites([run], new Set(run.sites)), []);
  assert.deepEqual(checkSites([run], new Set(['a.ts:1 (write)'])), ['b.ts:2 (read) is not on the list of places']);
});

test('the places that call the store are read from the sources, each where its call stands', () => {
  const text = `
    const one = await database.readKeyed(find({ id }));
    await parts.database
      .write([statement]);
    file.read(); database.statement(build); otherDatabase.write([]);`;
  assert.deepEqual(sitesIn(parseSource('src/lab/a.ts', text)), [
    'src/lab/a.ts:2 (readKeyed)',
    'src/lab/a.ts:4 (write)',
  ]);
  for (const service of SERVICES) assert.ok(storeCallSites(service).length > 5, service);
});

test('places that only several instances reach are left out, each once, and each by a row of the table', () => {
  for (const service of SERVICES) {
    const shared = sharedCallSites(service).map(({ site }) => site);
    assert.equal(new Set(shared).size, shared.length, service);
    const counted = storeCallSites(service);
    assert.deepEqual(
      shared.filter((site) => counted.includes(site)),
      [],
    );
  }
  assert.equal(sharedCallSites('completions').length, 2);
});

test('every call is planned to fail once before it is done, and once after it if it changes something', () => {
  const scenario: Scenario = { name: 'one', service: 'accounts', play: async () => undefined };
  const [read, write] = ['a.ts:1 (read)', 'b.ts:2 (write)'];
  const all = planFaults([{ scenario, calls: [read, write, read] }], 100, 1).map(({ broken }) => broken);
  assert.deepEqual(all, [
    { which: { site: read, nth: 1 }, when: 'before' },
    { which: { site: write, nth: 1 }, when: 'before' },
    { which: { site: write, nth: 1 }, when: 'after' },
    { which: { site: read, nth: 2 }, when: 'before' },
  ]);
});

test('with fewer runs than calls, one call of each place fails before and one after, and the seed says which', () => {
  const scenario: Scenario = { name: 'one', service: 'accounts', play: async () => undefined };
  const calls = Array.from({ length: 300 }, (_, index) => `a.ts:${index % 20} (${index % 2 === 0 ? 'read' : 'write'})`);
  const plan = (most: number, seed: number) =>
    planFaults([{ scenario, calls }], most, seed).map(({ broken }) => `${broken.which?.site} ${broken.when}`);
  const some = plan(30, 7);
  assert.deepEqual(new Set(some).size, 30, 'ten places that read, and ten that write before and after');
  assert.equal(new Set(plan(20, 7)).size, 20);
  assert.ok(
    plan(20, 7).every((one) => one.endsWith('before')),
    'every place before any of them twice',
  );
  const chosen = (seed: number) => planFaults([{ scenario, calls }], 30, seed).map(({ broken }) => broken.which?.nth);
  assert.deepEqual(chosen(7), chosen(7));
  assert.notDeepEqual(chosen(7), chosen(8));
});

test('a database that is looked into by a test fails for nobody', async () => {
  const calls: string[] = [];
  const answer = async () => {
    calls.push('call');
    return [];
  };
  const database = { write: answer, read: answer, readKeyed: answer, transaction: answer };
  const broken = breakDatabases([database as never], { which: { site: '', nth: 1 }, when: 'before' });
  await database.read();
  assert.deepEqual([calls.length, broken.brokenSites, broken.calls], [1, [], []]);
});

test('reads and writes of a service that copies the functions of its store are counted, each at its own place', async () => {
  const { sites, calls, operations } = await playScenario(
    proxyNodesScenario,
    { which: undefined, when: 'before' },
    () => 0,
  );
  assert.deepEqual(checkRun({ operations }), []);
  assert.ok(calls.some(isChange) && !calls.every(isChange), 'reads count too');
  assert.deepEqual(checkSites([{ sites } as BrokenRun], new Set(storeCallSites('accounts'))), []);
  assert.ok(sites.some((site) => site.endsWith('(readKeyed)')) && sites.some((site) => site.endsWith('(write)')));
});
