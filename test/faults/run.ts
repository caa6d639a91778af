import { parseArgs } from 'node:util';
import { accountsFaults } from './accounts/kill-cycles.ts';
import type { FaultSuite } from './fault-suite.ts';
import { forwardingFaults } from './forwarding/link-faults.ts';
import { jobsFaults } from './jobs/kill-cycles.ts';
import { sharedJobsFaults } from './jobs/shared-jobs.ts';
import { timingFaults } from './timing/timing-faults.ts';

/** All suites by the name that `npm run faults -- NAME` takes. */
const SUITES: Readonly<Record<string, FaultSuite>> = {
  jobs: jobsFaults,
  forwarding: forwardingFaults,
  'shared-jobs': sharedJobsFaults,
  accounts: accountsFaults,
  timing: timingFaults,
};

/** How often, unless it is said. */
const CYCLES = 200;
const OTHER_CYCLES: Readonly<Record<string, number>> = { accounts: 10 };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cycles: { type: 'string' }, seed: { type: 'string', default: '1' } },
});
const given = values.cycles === undefined ? undefined : Number(values.cycles);
const seed = Number(values.seed);
const unknown = positionals.filter((name) => !Object.hasOwn(SUITES, name));
if (unknown.length > 0 || !Number.isInteger(given ?? 1) || (given ?? 1) < 1 || !Number.isInteger(seed)) {
  process.stderr.write(`npm run faults -- [${Object.keys(SUITES).join('|')}] [--cycles N] [--seed N]\n`);
  process.exit(2);
}

let found = 0;
for (const name of positionals.length === 0 ? Object.keys(SUITES) : positionals) {
  const say = (line: string) => process.stdout.write(`${name}: ${line}\n`);
  const cycles = given ?? OTHER_CYCLES[name] ?? CYCLES;
  const violations = (await SUITES[name]?.({ cycles, seed, say })) ?? [];
  for (const violation of violations.slice(0, 50)) say(`VIOLATION ${violation}`);
  say(violations.length === 0 ? 'nothing was violated' : `${violations.length} violations`);
  found += violations.length;
}
process.exit(found === 0 ? 0 : 1);
