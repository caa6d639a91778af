/** What the tests reached of one file. */
export interface FileCoverage {
  /** From the root of the project. */
  readonly path: string;
  /** How often each line ran, by its number. */
  readonly lines: ReadonlyMap<number, number>;
  readonly branches: number;
  readonly branchesReached: number;
}

/** The records of Node's `lcov` reporter, one per file. */
export function readLcov(text: string): readonly FileCoverage[] {
  return text
    .split('end_of_record')
    .map(readRecord)
    .filter(({ path }) => path !== '');
}

function readRecord(record: string): FileCoverage {
  const lines = new Map<number, number>();
  let path = '';
  let branches = 0;
  let branchesReached = 0;
  for (const row of record.split('\n')) {
    const [, key, value = ''] = /^(SF|DA|BRDA):(.*)$/.exec(row) ?? [];
    const fields = value.split(',');
    if (key === 'SF') path = value;
    if (key === 'DA') lines.set(Number(fields[0]), Number(fields[1]));
    if (key === 'BRDA') {
      branches += 1;
      if (Number(fields[3]) > 0) branchesReached += 1;
    }
  }
  return { path, lines, branches, branchesReached };
}
