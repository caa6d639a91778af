import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Scope, temporaryFolder } from '../../test/e2e/running-program.ts';
import { type DriveTurn, driveDirectly, driveThroughBridge } from './agent-drivers.ts';
import { createScope } from './scripted-bridge.ts';

export interface TurnBenchOptions {
  readonly rounds: number;
  /** Short turns in each round. */
  readonly turns: number;
  /** Pieces of text in the long turn of each round. */
  readonly updates: number;
}

/** One entry for each round, except the times, which have one for each turn or commit. */
export interface TurnFigures {
  readonly directMs: number[];
  readonly bridgeMs: number[];
  /** One-row commits with node:sqlite and nothing around it. */
  readonly commitMs: number[];
  readonly directUpdates: number[];
  readonly bridgeUpdates: number[];
}

const WARM_UP_TURNS = 50;

/** Turns of one scripted agent, driven directly and through the bridge, in rounds that lie side by side. */
export async function benchTurns({ rounds, turns, updates }: TurnBenchOptions): Promise<TurnFigures> {
  const figures: TurnFigures = { directMs: [], bridgeMs: [], commitMs: [], directUpdates: [], bridgeUpdates: [] };
  const scope = createScope();
  try {
    const direct = await driveDirectly(scope);
    const bridge = await driveThroughBridge(scope);
    const commit = await openCommits(scope);
    for (const drive of [direct, bridge]) {
      await timeTurns(drive, WARM_UP_TURNS);
      await rateOfUpdates(drive, updates);
    }
    for (let round = 0; round < rounds; round += 1) {
      figures.directMs.push(...(await timeTurns(direct, turns)));
      figures.bridgeMs.push(...(await timeTurns(bridge, turns)));
      figures.commitMs.push(...Array.from({ length: turns }, commit));
      figures.directUpdates.push(await rateOfUpdates(direct, updates));
      figures.bridgeUpdates.push(await rateOfUpdates(bridge, updates));
    }
  } finally {
    await scope.end();
  }
  return figures;
}

async function timeTurns(drive: DriveTurn, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let turn = 0; turn < count; turn += 1) {
    const started = performance.now();
    await drive('echo hello');
    times.push(performance.now() - started);
  }
  return times;
}

/** Per second. A piece that is missing is a broken measurement. */
async function rateOfUpdates(drive: DriveTurn, count: number): Promise<number> {
  const started = performance.now();
  const pieces = await drive(`flood ${count}`);
  if (pieces !== count) throw new Error(`${pieces} of ${count} updates came`);
  return (count / (performance.now() - started)) * 1000;
}

async function openCommits(scope: Scope): Promise<() => number> {
  const database = new DatabaseSync(join(await temporaryFolder(scope), 'raw.db'));
  scope.after(() => database.close());
  database.exec(
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE rows (id integer PRIMARY KEY, body text)',
  );
  const insert = database.prepare('INSERT INTO rows (body) VALUES (?)');
  const body = 'x'.repeat(512);
  return () => {
    const started = performance.now();
    insert.run(body);
    return performance.now() - started;
  };
}
