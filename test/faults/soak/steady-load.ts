import { readdir } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { residentBytes } from '../../kit/resident-bytes.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { startBeforeModel } from '../program-before-model.ts';
import { type CallEnd, type CallName, checkOperations, figuresOf, type Operation } from './check-operations.ts';

const MINUTE_MS = 60_000;
const LOOK_EVERY_MS = 1000;
const IN_FLIGHT = 16;
const CALL_LIMIT_MS = 30_000;
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

/** P-40: so many minutes of calls of all kinds, as fast as they are answered; memory, files and sockets must stay where they are. */
export const soakFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('soak');
  try {
    const { program } = await startBeforeModel(scope, new URL('./steady-model.ts', import.meta.url));
    const { url, pid, stop } = program;
    const agent = new Agent({ keepAlive: true });
    scope.after(() => agent.destroy());
    const end = performance.now() + cycles * MINUTE_MS;
    /** Since the last look, by how they ended. */
    let ends = new Map<string, number>();
    function noteCalls(): void {
      for (const [end, count] of ends) log.note({ kind: 'calls', ...(JSON.parse(end) as CallEnd), count });
      ends = new Map();
    }
    const load = Array.from({ length: IN_FLIGHT }, async () => {
      while (performance.now() < end) {
        const name = MIXTURE[Math.floor(random() * MIXTURE.length)] ?? 'whole';
        const ended = JSON.stringify({ name, ...(await callOnce(agent, url, name)) });
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

/** Status 0: it was left, or there was no answer. */
function callOnce(agent: Agent, url: string, name: CallName): Promise<{ status: number; isWhole: boolean }> {
  const body = JSON.stringify({
    model: name === 'unknown' ? 'nobody/knows' : 'fake/m',
    stream: name === 'stream' || name === 'hang',
    messages: [{ role: 'user', content: name }],
  });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve) => {
    const asked = request(`${url}/v1/chat/completions`, { agent, method: 'POST', headers }, (answer) => {
      let last = '';
      answer.setEncoding('latin1').on('data', (piece: string) => {
        last = (last + piece).slice(-20);
        if (name === 'hang') asked.destroy();
      });
      const isWhole = () => (name === 'stream' ? last.endsWith('data: [DONE]\n\n') : last.endsWith('}'));
      answer.once('end', () => resolve({ status: answer.statusCode ?? 0, isWhole: isWhole() }));
      answer.once('error', () => undefined);
    });
    asked.setTimeout(CALL_LIMIT_MS, () => asked.destroy());
    asked.once('error', () => undefined);
    asked.once('close', () => resolve({ status: 0, isWhole: false }));
    asked.end(body);
  });
}
