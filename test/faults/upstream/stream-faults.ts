import { once } from 'node:events';
import { readdir, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, FAULTS, figuresOf, type Operation, type StoredOutcome } from './check-operations.ts';
import { startFaultyUpstream } from './faulty-upstream.ts';
import { askForStream, readStream, whenClosed } from './stream-client.ts';

const AT_ONCE = 50;
const IDLE_MS = 2000;
const MAX_WORDS = 30;
/** A client that has waited so long gives up. */
const LIMIT_MS = IDLE_MS + 20_000;
const BEGUN_LIMIT_MS = 20_000;
const QUIET_LIMIT_MS = 20_000;

/** Breaks so many streams at the upstream, and leaves as many as their client. */
export const upstreamFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const log = openOperationLog<Operation>('upstream');
  const { note } = log;
  const random = seededRandom(seed);

  try {
    const folder = await temporaryFolder(scope);
    const upstream = await startFaultyUpstream(note);
    scope.after(upstream.close);
    const config = join(folder, 'trestle.yaml');
    await writeFile(config, JSON.stringify({ completions: settingsOf(upstream.url, cycles) }));
    const args = ['completions', '--config', config, '--log-level', 'silent'];
    const { url, pid, stop } = await startProgram(scope, { args, dataDirectory: folder });
    const before = await countSockets(pid);

    await inParallel(cycles, async (index) => {
      const id = `stream-${index}`;
      const fault = FAULTS[Math.floor(random() * FAULTS.length)] ?? 'whole';
      const asked = askForStream(url, `model-${index}`, {
        id,
        words: Math.floor(random() * MAX_WORDS),
        ending: fault,
      });
      note(await readStream(asked, id, LIMIT_MS));
    });
    say(`${cycles} streams are over`);

    await inParallel(cycles, async (index) => {
      const id = `left-${index}`;
      const words = random() < 0.5 ? 0 : 1;
      const begun = upstream.begun(id);
      const asked = askForStream(url, 'lab/any', { id, words, ending: 'endless' });
      const seen = words === 0 ? begun : once(asked, 'response').catch(() => undefined);
      await Promise.race([seen, sleep(BEGUN_LIMIT_MS, undefined, { ref: false })]);
      await sleep(random() * 100);
      const closed = whenClosed(asked);
      note({ kind: 'abort', id, at: performance.now() });
      asked.destroy();
      await closed;
    });
    say(`${cycles} clients have left`);

    // Unused connections are kept for a moment; then none is left.
    for (const limit = Date.now() + QUIET_LIMIT_MS; upstream.openSockets() > 0 && Date.now() < limit; ) await sleep(50);
    note({ kind: 'sockets', of: 'the upstream', open: upstream.openSockets(), spare: 0 });
    note({ kind: 'sockets', of: 'the program', open: await countSockets(pid), spare: before });
    await stop('SIGTERM');
    const stored = readOutcomes(join(folder, 'completions.db'));
    return await log.report({
      check: (operations) => checkOperations(operations, stored, IDLE_MS),
      figures: (operations) => figuresOf(operations, stored, IDLE_MS),
      say,
    });
  } finally {
    await scope.end();
  }
};

/** Each stream has a model of its own: one that fails again and again is not asked for a while. */
function settingsOf(upstream: string, count: number): object {
  const timeouts = { first_byte: `${IDLE_MS}ms`, idle: `${IDLE_MS}ms` };
  const models = Array.from({ length: count }, (_, index) => ({
    name: `model-${index}`,
    targets: [{ model: `lab/model-${index}` }],
    retries: 0,
    timeouts,
  }));
  return { apis: { lab: { base_url: upstream } }, models };
}

async function inParallel(count: number, run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      await run(next - 1);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, count) }, work));
}

/** Of a process, where the system tells; else none. */
async function countSockets(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fd`;
  const names = await readdir(folder).catch(() => []);
  const links = await Promise.all(names.map((name) => readlink(join(folder, name)).catch(() => '')));
  return links.filter((link) => link.startsWith('socket:')).length;
}

function readOutcomes(file: string): StoredOutcome[] {
  using database = new DatabaseSync(file, { readOnly: true });
  const rows = database.prepare('SELECT request_id, outcome FROM usage_records').all();
  return rows.map(({ request_id: id, outcome }) => ({ id: String(id), outcome: String(outcome) }));
}
