import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runOf } from '../../scripts/measurements-part.ts';
import { accountsFaults } from './accounts/kill-cycles.ts';
import { clockFaults } from './clock/clock-faults.ts';
import { clusterFaults } from './cluster/cluster-faults.ts';
import { databaseFaults } from './database/database-faults.ts';
import { diskFullFaults } from './disk-full/disk-full-faults.ts';
import { fanOutFaults } from './fan-out/fan-out-faults.ts';
import { figuresTable, withSuiteRun } from './fault-report.ts';
import { type FaultSuite, missedGoals, untried, withViolations } from './fault-suite.ts';
import { forwardingFaults } from './forwarding/link-faults.ts';
import { fuzzFaults, parserFaults } from './fuzz/fuzz-faults.ts';
import { jobsFaults } from './jobs/kill-cycles.ts';
import { sharedJobsFaults } from './jobs/shared-jobs.ts';
import { takeoverFaults } from './jobs/takeover.ts';
import { limitsFaults } from './limits/limit-faults.ts';
import { manyFaults } from './many/many-members.ts';
import { meteringFaults } from './metering/kill-cycles.ts';
import { restartsFaults } from './restarts/rolling-restarts.ts';
import { sessionsFaults } from './sessions/kill-cycles.ts';
import { instancesScenario } from './simulation/bridge/instances-scenario.ts';
import { SCENARIOS, simulationFaults } from './simulation/simulation.ts';
import { slowFaults } from './slow/slow-peers.ts';
import { soakFaults } from './soak/steady-load.ts';
import { socketsFaults } from './sockets/many-sockets.ts';
import { storeCallFaults } from './store-calls/store-call-faults.ts';
import { streamsFaults } from './streams/many-streams.ts';
import { timingFaults } from './timing/timing-faults.ts';
import { upstreamFaults } from './upstream/stream-faults.ts';

interface SuiteRow {
  readonly run: FaultSuite;
  /** How often, unless it is said. */
  readonly cycles: number;
}

/** All suites by the name that `npm run faults -- NAME` takes. */
const SUITES: Readonly<Record<string, SuiteRow>> = {
  jobs: { run: jobsFaults, cycles: 200 },
  takeover: { run: takeoverFaults, cycles: 50 },
  restarts: { run: restartsFaults, cycles: 100 },
  'shared-jobs': { run: sharedJobsFaults, cycles: 200 },
  cluster: { run: clusterFaults, cycles: 20 },
  'fan-out': { run: fanOutFaults, cycles: 3 },
  many: { run: manyFaults, cycles: 8 },
  forwarding: { run: forwardingFaults, cycles: 200 },
  database: { run: databaseFaults, cycles: 50 },
  'disk-full': { run: diskFullFaults, cycles: 5 },
  // The most calls of each service that fail: all of them.
  'store-calls': { run: storeCallFaults, cycles: 2000 },
  clock: { run: clockFaults, cycles: 8 },
  // Seeds, one after the other from the one that is given.
  simulation: { run: simulationFaults(SCENARIOS.filter((scenario) => scenario !== instancesScenario)), cycles: 1000 },
  // Several instances on one database; seeds, too.
  instances: { run: simulationFaults([instancesScenario]), cycles: 10_000 },
  accounts: { run: accountsFaults, cycles: 10 },
  timing: { run: timingFaults, cycles: 200 },
  sessions: { run: sessionsFaults, cycles: 100 },
  metering: { run: meteringFaults, cycles: 60 },
  limits: { run: limitsFaults, cycles: 40 },
  // So often a thousand streams of half a minute.
  streams: { run: streamsFaults, cycles: 10 },
  // Streams, and sockets.
  upstream: { run: upstreamFaults, cycles: 1000 },
  slow: { run: slowFaults, cycles: 2000 },
  // So many times as long as in `npm test`.
  fuzz: { run: fuzzFaults, cycles: 50 },
  parsers: { run: parserFaults, cycles: 1060 },
  // Minutes.
  soak: { run: soakFaults, cycles: 10 },
  sockets: { run: socketsFaults, cycles: 10 },
};

const MEASUREMENTS = fileURLToPath(new URL('../../docs/measurements.md', import.meta.url));
const MAX_SHOWN = 50;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    cycles: { type: 'string' },
    seed: { type: 'string', default: '1' },
    load: { type: 'string' },
    write: { type: 'boolean', default: false },
  },
});
const given = values.cycles === undefined ? undefined : Number(values.cycles);
const seed = Number(values.seed);
const load = values.load === undefined ? undefined : Number(values.load);
const isCount = (number = 1) => Number.isInteger(number) && number >= 1;
const unknown = positionals.filter((name) => !Object.hasOwn(SUITES, name));
if (unknown.length > 0 || !isCount(given) || !isCount(load) || !Number.isInteger(seed)) {
  const names = Object.keys(SUITES).join('|');
  process.stderr.write(`npm run faults -- [${names}] [--cycles N] [--seed N] [--load N] [--write]\n`);
  process.exit(2);
}

const startedAt = runOf(new Date());
let found = 0;
let missed = 0;
const names = positionals.length === 0 ? Object.keys(SUITES) : positionals;
for (const [suite, { run, cycles: usual }] of Object.entries(SUITES)) {
  if (!names.includes(suite)) continue;
  const say = (line: string) => process.stdout.write(`${suite}: ${line}\n`);
  const cycles = given ?? usual;
  say(`${cycles} cycles, seed ${seed}`);
  const { impossible, ...report } = await run({ cycles, seed, load, say });
  if (impossible !== undefined) {
    say(`could not be run: ${impossible}`);
    // Whoever asks for it by name wants to know; as one of all it is left out.
    if (positionals.includes(suite)) found += 1;
    continue;
  }
  const all = [...report.violations, ...untried(report.figures)];
  const figures = withViolations(report.figures, all);
  process.stdout.write(`\n${figuresTable(figures)}\n`);
  for (const violation of all.slice(0, MAX_SHOWN)) say(`VIOLATION ${violation}`);
  say(all.length === 0 ? 'nothing was violated' : `${all.length} violations`);
  found += all.length;
  missed += missedGoals(figures).length;
  if (values.write) {
    const document = await readFile(MEASUREMENTS, 'utf8');
    await writeFile(MEASUREMENTS, withSuiteRun(document, { suite, cycles, seed, load, figures, ...startedAt }));
  }
}
process.stdout.write(missed === 0 ? 'every goal met\n' : `${missed} goals missed\n`);
process.exit(found === 0 ? 0 : 1);
