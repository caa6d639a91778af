import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { until } from '../../kit/until.ts';
import {
  countFigure,
  type FaultOptions,
  type FaultReport,
  type FaultSuite,
  longestFigure,
  neverFigure,
  seededRandom,
} from '../fault-suite.ts';
import { beginTurn, callBridge, checkTurn, type FollowedTurn, followSession, readTurn } from './followed-turn.ts';

const INSTANCES = 3;
const TURNS = 6;
const PATIENCE_MS = 120_000;
/** A dead instance is found within this time. */
const FOUND_MS = 12_000;
const CANCEL_MS = 250;

type Fault = 'none' | 'kill' | 'freeze' | 'outage' | 'clock';
const FAULTS: readonly Fault[] = ['none', 'kill', 'freeze', 'outage', 'clock'];

/**
 * In each cycle turns are begun, followed and cancelled through random instances, while one is killed or frozen, the database is away,
 * or an instance joins whose clock is wrong. Each turn ends once, as it was reported; no number is used twice; followers get everything.
 */
export const clusterFaults: FaultSuite = (options) => playFaults(options, FAULTS);

/** The same with the given faults, in turn. */
export async function playFaults({ cycles, seed, say }: FaultOptions, faults: readonly Fault[]): Promise<FaultReport> {
  const random = seededRandom(seed);
  const scope = createScope();
  const violations: string[] = [];
  const counts: Record<Fault, number> = { none: 0, kill: 0, freeze: 0, outage: 0, clock: 0 };
  const cancelMs: number[] = [];
  const foundMs: number[] = [];
  let turnsSeen = 0;
  let unreported = 0;
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const programs: RunningProgram[] = [];
    for (let index = 0; index < INSTANCES; index += 1) programs.push(await startInstance(scope, server));
    const anyOf = (): RunningProgram => programs[Math.floor(random() * INSTANCES)] as RunningProgram;

    async function breakSomething(fault: Fault): Promise<number | undefined> {
      await sleep(random() * 1000);
      const index = Math.floor(random() * INSTANCES);
      const program = programs[index] as RunningProgram;
      if (fault === 'kill') {
        await program.stop('SIGKILL');
        const killedAt = performance.now();
        programs[index] = await startInstance(scope, server);
        return killedAt;
      }
      if (fault === 'freeze') {
        program.child.kill('SIGSTOP');
        await sleep(3000 + random() * 27_000);
        program.child.kill('SIGCONT');
      } else if (fault === 'outage') {
        await server.pause();
        await sleep(1000 + random() * 14_000);
        await server.start();
      } else if (fault === 'clock') {
        const ahead = await startInstance(scope, server, (random() < 0.5 ? -1 : 1) * 90_000);
        await sleep(5000);
        await ahead.stop('SIGTERM');
      }
      return undefined;
    }

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const fault = faults[(cycle - 1) % faults.length] as Fault;
      counts[fault] += 1;
      const turns = Array.from({ length: TURNS }, (_, index): FollowedTurn => {
        const sessionId = `cycle-${cycle}-${index}`;
        const reported = beginTurn(anyOf().url, sessionId, 100 + Math.floor(random() * 150));
        return { sessionId, reported, follower: followSession(sessionId, () => anyOf().url) };
      });
      for (const { sessionId, follower } of turns)
        await until(`${sessionId} to run`, () => follower.seqs.length > 3, PATIENCE_MS);
      const broken = breakSomething(fault);
      // Every third turn is cancelled, at an instance that need not have it.
      for (const turn of turns.filter((_, index) => index % 3 === 2)) {
        await sleep(random() * 1000);
        const { result } = await callBridge(anyOf().url, 'session.cancel', { sessionId: turn.sessionId }).catch(() => ({
          result: undefined,
        }));
        if ((result as { readonly accepted?: boolean } | undefined)?.accepted === true)
          turn.cancelledAt = performance.now();
      }
      const killedAt = await broken;
      for (const turn of turns) {
        const reported = await turn.reported;
        const stored = await until(
          `the end of ${turn.sessionId}`,
          async () => {
            const found = await readTurn(anyOf().url, turn.sessionId).catch(() => undefined);
            return found?.turns.every(({ status }) => status !== 'running') === true && found;
          },
          PATIENCE_MS,
        );
        const last = stored.seqs.at(-1) ?? 0;
        await until('a follower', () => (turn.follower.seqs.at(-1) ?? 0) >= last, PATIENCE_MS).catch(() => undefined);
        turn.follower.stop();
        // What is stored is read again: nothing may be added after the end.
        violations.push(
          ...checkTurn(
            turn,
            reported,
            await until(
              'what is stored',
              () => readTurn(anyOf().url, turn.sessionId).catch(() => undefined),
              PATIENCE_MS,
            ),
          ).map((text) => `${fault}: ${text}`),
        );
        turnsSeen += 1;
        if (reported.status === undefined) unreported += 1;
        if (fault === 'none' && turn.cancelledAt !== undefined)
          cancelMs.push(Math.max(0, reported.at - turn.cancelledAt));
        const isInterrupted = stored.turns[0]?.code === 'TURN_INTERRUPTED';
        if (killedAt !== undefined && isInterrupted) {
          const endedAt = Number(stored.turns[0]?.endedAt) - performance.timeOrigin;
          foundMs.push(endedAt - killedAt);
        }
      }
      say(`${cycle} of ${cycles} cycles (${fault})`);
    }
  } finally {
    await scope.end();
  }
  return {
    violations,
    figures: [
      countFigure('turns on three instances', turnsSeen),
      countFigure('turns whose caller got no result', unreported),
      ...FAULTS.slice(1).map((fault) => countFigure(`cycles: ${fault}`, counts[fault])),
      longestFigure('from accepted cancel to the end', cancelMs, CANCEL_MS),
      longestFigure('from kill to the stored end', foundMs, FOUND_MS),
      neverFigure('violations', violations.length),
    ],
  };
}

async function startInstance(scope: Scope, server: RealPostgres, aheadMs = 0): Promise<RunningProgram> {
  const args = ['--log-level', 'error', '--database', server.url];
  if (aheadMs === 0) return startProgram(scope, { args });
  const script = join(await temporaryFolder(scope), 'clock.cjs');
  await writeFile(script, `const now = Date.now;\nDate.now = () => now() + ${aheadMs};\n`);
  return startProgram(scope, { args, environment: { NODE_OPTIONS: `--require ${script}` } });
}
