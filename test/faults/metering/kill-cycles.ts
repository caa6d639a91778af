import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { CALL_PRICE, PRICES, startCountingUpstream } from './counting-upstream.ts';
import { complete, type IssuedKey, issueKey } from './metered-client.ts';
import { readStoredUsage } from './stored-usage.ts';

const CLIENTS = 16;
const MIN_MS = 300;
/** Some cycles are longer than the second after which records are stored. */
const MAX_MS = 2500;
/** A slow machine takes longer. */
const MIN_ANSWERS = 60;
const LIMIT_MS = 20_000;
/** Budgets in calls: small enough to run out within some cycles. */
const MIN_BUDGET = 10;
const MAX_BUDGET = 100;
const USED_BUDGETS = 3;
/** One in so many cycles ends in a clean stop. */
const CLEAN_STOPS = 3;
const MASTER_KEY = 'master-key-1a2b3c4d5e6f7';

/** Stops completions under load, mostly by kill -9; then compares what the upstream answered with what is stored. */
export const meteringFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const log = openOperationLog<Operation>('metering');
  const { note } = log;
  const random = seededRandom(seed);
  const keys: IssuedKey[] = [];
  let calls = 0;
  let answers = 0;

  async function issue(url: string, budgetUsd: number | null): Promise<void> {
    const issued = await issueKey(url, MASTER_KEY, budgetUsd);
    note({ kind: 'issued', key: issued.id, budgetUsd });
    keys.push(issued);
  }

  /** The first key has no budget. */
  function drawKey(): IssuedKey | undefined {
    const budgets = keys.slice(1).slice(-USED_BUDGETS);
    return random() < 0.4 ? keys[0] : budgets[Math.floor(random() * budgets.length)];
  }

  async function callUntil(url: string, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const { id: keyId = '', key = '' } = drawKey() ?? {};
      calls += 1;
      const id = `c${calls}`;
      note({ kind: 'sent', id, key: keyId });
      const call = await complete({ url, id, key, stream: random() < 0.5 });
      note(call);
      if (call.outcome !== 'ok') await sleep(10);
    }
  }

  try {
    const folder = await temporaryFolder(scope);
    const answered = (id: string): void => {
      answers += 1;
      note({ kind: 'answered', id, at: performance.now() });
    };
    const upstream = await startCountingUpstream(answered, seededRandom(seed + 1));
    scope.after(upstream.close);
    const config = join(folder, 'trestle.yaml');
    const completions = { master_key: MASTER_KEY, apis: { lab: { base_url: upstream.url } }, prices: PRICES };
    await writeFile(config, JSON.stringify({ completions }), { mode: 0o600 });

    const start = async (): Promise<RunningProgram> => {
      const began = performance.now();
      const args = ['completions', '--config', config, '--log-level', 'silent'];
      const program = await startProgram(scope, { args, dataDirectory: folder });
      note({ kind: 'ready', ms: performance.now() - began });
      return program;
    };

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const running = await start();
      if (cycle === 1) await issue(running.url, null);
      const budget = MIN_BUDGET + Math.floor(random() * (MAX_BUDGET - MIN_BUDGET));
      await issue(running.url, budget * CALL_PRICE.costUsd);
      let isOver = false;
      const load = Array.from({ length: CLIENTS }, () => callUntil(running.url, () => isOver));
      const enough = answers + MIN_ANSWERS;
      const limit = Date.now() + LIMIT_MS;
      await sleep(MIN_MS + random() * (MAX_MS - MIN_MS));
      while (answers < enough && Date.now() < limit) await sleep(5);
      const signal = cycle % CLEAN_STOPS === 0 ? 'SIGTERM' : 'SIGKILL';
      isOver = true;
      const at = performance.now();
      await running.stop(signal);
      await Promise.all(load);
      // Noted when all answers are: what a clean stop has let finish belongs to it.
      note({ kind: 'stop', signal, at });
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} cycles, ${calls} calls`);
    }
    const last = await start();
    const code = await last.stop('SIGTERM');
    const operations = await log.close();
    const store = readStoredUsage(join(folder, 'completions.db'));
    const violations = checkOperations(operations, store, CALL_PRICE);
    if (code !== 0) violations.push(`the last clean stop ended with ${code}`);
    await log.settle(violations, say);
    return { violations, figures: figuresOf(operations, store, CALL_PRICE) };
  } finally {
    await scope.end();
  }
};
