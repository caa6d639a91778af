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

const MOST_RUNS: Readonly<Record<TurnOperation['outcome'], number>> = { ok: 1, not_started: 0, refused: 0, unknown: 1 };

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
    if (count > MOST_RUNS[outcome]) violations.push(`${what} was told ${outcome} and ran ${count} times`);
    if (outcome === 'ok' && count === 0) violations.push(`${what} was told ok and never ran`);
    if (ms > limitMs) violations.push(`${what} was answered only after ${Math.round(ms)} ms`);
  }
  for (const [session, turns] of Map.groupBy(found, (turn) => turn.session)) {
    const nodes = [...new Set(turns.map(({ node }) => node))];
    if (nodes.length > 1) violations.push(`session ${session} was started on ${nodes.join(' and on ')}`);
  }
  return violations;
}
