import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { createScope } from '../../test/kit/create-scope.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';
import { driveThroughAcpx } from './acpx.ts';
import { type DriveTurn, driveDirectly, driveThroughBridge } from './agent-drivers.ts';

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
  /** Commits of the bridge for each of its short turns. */
  readonly commitsOfTurn: number[];
  readonly directUpdates: number[];
  readonly bridgeUpdates: number[];
  /** One turn of each in every round; missing where the peer cannot be had. */
  readonly besidePeer: { readonly bridge: TurnTimes; readonly peer: TurnTimes } | undefined;
}

/** From the prompt to the first text, and to the end of the turn. */
export interface TurnTimes {
  readonly textMs: number[];
  readonly turnMs: number[];
}

const WARM_UP_TURNS = 50;

/** Turns of one scripted agent, driven directly and through the bridge, in rounds that lie side by side. */
export async function benchTurns({ rounds, turns, updates }: TurnBenchOptions): Promise<TurnFigures> {
  const scope = createScope();
  try {
    const peer = await driveThroughAcpx(scope);
    const figures: TurnFigures = {
      directMs: [],
      bridgeMs: [],
      commitMs: [],
      commitsOfTurn: [],
      directUpdates: [],
      bridgeUpdates: [],
      besidePeer: peer === undefined ? undefined : { bridge: emptyTimes(), peer: emptyTimes() },
    };
    const direct = await driveDirectly(scope);
    const { drive: bridge, commits } = await driveThroughBridge(scope);
    const commit = await openCommits(scope);
    await peer?.('echo ready');
    for (const drive of [direct, bridge]) {
      await timeTurns(drive, WARM_UP_TURNS);
      await rateOfUpdates(drive, updates);
    }
    for (let round = 0; round < rounds; round += 1) {
      figures.directMs.push(...(await timeTurns(direct, turns)));
      const before = await commits();
      figures.bridgeMs.push(...(await timeTurns(bridge, turns)));
      figures.commitsOfTurn.push(((await commits()) - before) / turns);
      figures.commitMs.push(...Array.from({ length: turns }, commit));
      figures.directUpdates.push(await rateOfUpdates(direct, updates));
      figures.bridgeUpdates.push(await rateOfUpdates(bridge, updates));
      if (peer === undefined || figures.besidePeer === undefined) continue;
      await timeTurn(bridge, figures.besidePeer.bridge);
      await timeTurn(peer, figures.besidePeer.peer);
    }
    return figures;
  } finally {
    await scope.end();
  }
}

function emptyTimes(): TurnTimes {
  return { textMs: [], turnMs: [] };
}

async function timeTurn(drive: DriveTurn, times: TurnTimes): Promise<void> {
  const started = performance.now();
  const { firstAt } = await drive('echo hello');
  times.textMs.push(firstAt - started);
  times.turnMs.push(performance.now() - started);
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
  const { pieces } = await drive(`flood ${count}`);
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
