import assert from 'node:assert/strict';

/**
 * A matrix of who may do what. The names of its rows come from the tables of the service, so a route or method without an
 * expectation fails, and so does an expectation for something that no longer exists.
 */
export interface PermissionMatrix<Caller extends string> {
  /** What the tables of the service hold now. */
  readonly names: readonly string[];
  readonly callers: readonly Caller[];
  /** By name, what each caller gets: one word that `ask` returns. */
  readonly expected: Readonly<Record<string, Readonly<Record<Caller, string>>>>;
  ask(name: string, caller: Caller): Promise<string>;
}

/** Asks for every row as every caller, and reports all differences together. */
export async function checkPermissions<Caller extends string>(matrix: PermissionMatrix<Caller>): Promise<void> {
  const { names, callers, expected, ask } = matrix;
  const missing = names.filter((name) => expected[name] === undefined);
  assert.deepEqual(missing, [], 'rows without an expectation: say what each caller gets');
  const stale = Object.keys(expected).filter((name) => !names.includes(name));
  assert.deepEqual(stale, [], 'expectations for rows that do not exist');
  const differences: string[] = [];
  for (const name of names) {
    for (const caller of callers) {
      const wanted = expected[name]?.[caller];
      const found = await ask(name, caller);
      if (found !== wanted) differences.push(`${name} as ${caller}: ${found} instead of ${wanted}`);
    }
  }
  assert.deepEqual(differences, []);
}
