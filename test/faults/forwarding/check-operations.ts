import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** A turn that a client asked the first node for, and what it was told. */
export interface TurnOperation {
  /** Its prompt, which no other has. */
  readonly prompt: string;
  readonly session: string;
  readonly method: 'session.start' | 'session.message';
  readonly transport: string;
  /** `refused`: an answer that means that nothing was run. */
  readonly outcome: 'ok' | 'not_started' | 'refused' | 'unknown';
  readonly ms: number;
}

/** A turn that a node has in its store at the end. */
export interface FoundTurn {
  readonly node: string;
  readonly session: string;
  readonly prompt: string;
}

/** Goal for a node that cannot be reached. */
const NOT_STARTED_MS = 5000;

const MAX_RUNS: Readonly<Record<TurnOperation['outcome'], number>> = { ok: 1, not_started: 0, refused: 0, unknown: 1 };

/** Judges a whole run by its log and by what the nodes have stored at its end. */
export function checkOperations(
  operations: readonly TurnOperation[],
  found: readonly FoundTurn[],
  limitMs: number,
): string[] {
  const violations: string[] = [];
  const runs = Map.groupBy(found, ({ prompt }) => prompt);
  for (const { prompt, method, transport, outcome, ms } of operations) {
    const count = runs.get(prompt)?.length ?? 0;
    const what = `${method} "${prompt}" over ${transport}`;
    if (count > MAX_RUNS[outcome]) violations.push(`${what} was told ${outcome} and ran ${count} times`);
    if (outcome === 'ok' && count === 0) violations.push(`${what} was told ok and never ran`);
    if (ms > limitMs) violations.push(`${what} was answered only after ${Math.round(ms)} ms`);
  }
  for (const [session, turns] of Map.groupBy(found, (turn) => turn.session)) {
    const nodes = [...new Set(turns.map(({ node }) => node))];
    if (nodes.length > 1) violations.push(`session ${session} was started on ${nodes.join(' and on ')}`);
  }
  return violations;
}

/** What the run came to, by its log and by what the nodes have stored at its end. */
export function figuresOf(
  operations: readonly TurnOperation[],
  found: readonly FoundTurn[],
  limitMs: number,
): FaultFigure[] {
  const timesOf = (wanted: TurnOperation['outcome']) =>
    operations.flatMap(({ outcome, ms }) => (outcome === wanted ? [ms] : []));
  const count = (wanted: TurnOperation['outcome']) => timesOf(wanted).length;
  const runs = Map.groupBy(found, ({ prompt }) => prompt);
  const sessions = [...Map.groupBy(found, ({ session }) => session).values()];
  const spread = sessions.filter((turns) => new Set(turns.map(({ node }) => node)).size > 1);
  const answered = operations.filter(({ outcome }) => outcome === 'ok');
  return [
    workFigure('turns answered', answered.length),
    countFigure('turns told not started', count('not_started')),
    countFigure('turns refused', count('refused')),
    countFigure('turns of unknown outcome', count('unknown')),
    neverFigure('answered turns lost', answered.filter(({ prompt }) => !runs.has(prompt)).length),
    neverFigure('turns run twice', [...runs.values()].filter((turns) => turns.length > 1).length),
    neverFigure('sessions on two nodes', spread.length),
    longestFigure('told that nothing was started, after at most', timesOf('not_started'), NOT_STARTED_MS),
    longestFigure(
      'any answer, after at most',
      operations.map(({ ms }) => ms),
      limitMs,
    ),
  ];
}
