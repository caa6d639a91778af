import { readdir } from 'node:fs/promises';
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { residentBytes } from '../../kit/resident-bytes.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { startBeforeModel } from '../program-before-model.ts';
import { type CallEnd, type CallName, checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { callOnce, type SteadyCaller } from './steady-calls.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const LOOK_EVERY_MS = SECOND_MS;
const IN_FLIGHT = 16;
/** What is asked for most stands most often. */
const MIXTURE: readonly CallName[] = [
  'whole',
  'whole',
  'whole',
  'whole',
  'stream',
  'stream',
  'stream',
  'hang',
  'refused',
  'unknown',
];
/** One of so many calls is for the bridge or accounts: each is a dozen requests, or some milliseconds of hashing. */
const OTHERS_EVERY = 10;
const OTHERS: readonly CallName[] = ['turn', 'turn', 'streamedTurn', 'leftTurn', 'socketTurn', 'job', 'login', 'lists'];
const SETTINGS = { agents: { catalog: ['builtin'] }, accounts: { require_verification: false } };
const PERSON = { email: 'ann@example.org', password: 'copper kettle over the pass' };

/** P-40: so many minutes of calls to all services, as fast as they are answered or so many a second; memory, files and sockets must stay where they are. */
export const soakFaults: FaultSuite = async ({ cycles, seed, load: callsPerSecond, say }) => {
  const scope = createScope();
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('soak');
  try {
    const model = new URL('./steady-model.ts', import.meta.url);
    const { program } = await startBeforeModel(scope, model, { services: [], settings: SETTINGS });
    const { url, pid, stop } = program;
    await register(url);
    const agent = new Agent({ keepAlive: true });
    scope.after(() => agent.destroy());
    const end = performance.now() + cycles * MINUTE_MS;
    /** Since the last look, by how they ended. */
    let ends = new Map<string, number>();
    function noteCalls(): void {
      for (const [end, count] of ends) log.note({ kind: 'calls', ...(JSON.parse(end) as CallEnd), count });
      ends = new Map();
    }
    let sessions = 0;
    const caller: SteadyCaller = {
      ...{ url, agent, ...PERSON },
      newSession() {
        sessions += 1;
        return `soak-${sessions}`;
      },
    };
    const everyMs = callsPerSecond === undefined ? 0 : (IN_FLIGHT * SECOND_MS) / callsPerSecond;
    const load = Array.from({ length: IN_FLIGHT }, async () => {
      for (let due = performance.now(); due < end; due = Math.max(due + everyMs, performance.now())) {
        const waitMs = due - performance.now();
        if (waitMs > 0) await sleep(waitMs);
        const mixture = random() < 1 / OTHERS_EVERY ? OTHERS : MIXTURE;
        const name = mixture[Math.floor(random() * mixture.length)] ?? 'whole';
        const ended = JSON.stringify(await callOnce(name, caller));
        ends.set(ended, (ends.get(ended) ?? 0) + 1);
      }
    });
    while (performance.now() < end) {
      const [bytes, open] = await Promise.all([residentBytes(pid), readdir(`/proc/${pid}/fd`)]);
      log.note({ kind: 'level', bytes, descriptors: open.length });
      noteCalls();
      await sleep(LOOK_EVERY_MS);
    }
    await Promise.all(load);
    noteCalls();
    await stop('SIGTERM');
    return await log.report({ check: checkOperations, figures: figuresOf, say });
  } finally {
    await scope.end();
  }
};

async function register(url: string): Promise<void> {
  const response = await fetch(`${url}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...PERSON, name: 'Ann' }),
  });
  if (!response.ok) throw new Error(`the registration ended with ${response.status}: ${await response.text()}`);
}
