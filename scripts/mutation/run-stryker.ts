import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** What became of a mutant, as far as the report needs it. */
export interface Mutant {
  readonly fileName: string;
  readonly status: string;
  readonly mutatorName: string;
  readonly replacement: string;
  readonly location: { readonly start: { readonly line: number } };
}

export interface StrykerRun {
  /** The folder of Stryker's package. */
  readonly stryker: string;
  readonly project: string;
  readonly sources: readonly string[];
  readonly judges: readonly string[];
  readonly without: string | undefined;
  /** Where copies of the project go. Stryker removes those that it makes. */
  readonly workFolder: string;
  /** Where the results are kept for the next run, which then judges only what has changed. */
  readonly incrementalFile: string | undefined;
}

const CONCURRENCY = 2;

/** Mutates the sources in a copy of the project and runs each mutant against those tests that reach it. */
export async function runStryker(run: StrykerRun): Promise<readonly Mutant[]> {
  const { Stryker } = (await import(pathToFileURL(join(run.stryker, 'dist', 'src', 'index.js')).href)) as {
    Stryker: new (options: object) => { runMutationTest(): Promise<readonly Mutant[]> };
  };
  return await new Stryker(optionsOf(run)).runMutationTest();
}

function optionsOf({ project, sources, judges, without, workFolder, incrementalFile }: StrykerRun): object {
  const quickStart = `--require=${join(project, 'scripts', 'quick-start.cjs')}`;
  const skipped = without === undefined ? [] : [`--test-skip-pattern=${without}`];
  return {
    mutate: sources,
    testRunner: 'tap',
    tap: {
      testFiles: judges,
      nodeArgs: [quickStart, '--require={{hookFile}}', '--test-reporter=tap', ...skipped, '{{testFile}}'],
      // The first failure of a file is its verdict.
      forceBail: true,
    },
    // For this runner a test is a file: a mutant runs against the files that reach it.
    coverageAnalysis: 'perTest',
    concurrency: CONCURRENCY,
    timeoutMS: 10_000,
    timeoutFactor: 2,
    dryRunTimeoutMinutes: 15,
    tempDirName: workFolder,
    cleanTempDir: 'always',
    ignorePatterns: ['/dist', '/data', '/.tmp', '/coverage'],
    // Node takes the types away without looking at them: nothing is put before a file, and no tsconfig is rewritten.
    disableTypeChecks: false,
    checkers: [],
    tsconfigFile: 'none',
    reporters: ['progress-append-only'],
    allowConsoleColors: false,
    warnings: { slow: false },
    logLevel: 'warn',
    ...(incrementalFile === undefined ? {} : { incremental: true, incrementalFile }),
  };
}
