import { createHash } from 'node:crypto';
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
  readonly share: Share;
}

/** Which of the mutants are tried: the same seed chooses the same ones, wherever the project lies. */
export interface Share {
  readonly percent: number;
  readonly seed: number;
}

/** A mutant as the checker of Stryker gets it. */
interface FoundMutant {
  readonly id: string;
  readonly fileName: string;
  readonly mutatorName: string;
  readonly replacement: string;
  readonly location: { readonly start: { readonly line: number; readonly column: number } };
}

const CONCURRENCY = 2;
/** Most tests of stores run on both engines, and a server of its own for each mutant would take most of the time. */
const OTHER_ENGINE = 'on postgres';
const CHECKER = 'share';
/** The status that Stryker gives to what a checker refuses. No other checker is used. */
const NOT_CHOSEN = 'CompileError';
const HASH_RANGE = 2 ** 32;

/** A checker that lets only those mutants pass that were chosen. Stryker loads this module to get it. */
function createChecker({ share }: { readonly share: Share }): object {
  const resultOf = (mutant: FoundMutant): object =>
    isChosen(mutant, share) ? { status: 'passed' } : { status: 'compileError', reason: 'not chosen' };
  return {
    init: async () => {},
    check: async (mutants: readonly FoundMutant[]) =>
      Object.fromEntries(mutants.map((mutant) => [mutant.id, resultOf(mutant)])),
    // All of them in one call.
    group: async (mutants: readonly FoundMutant[]) => [mutants.map(({ id }) => id)],
  };
}
createChecker.inject = ['options'];

/** @public Stryker looks for it by this name. */
export const strykerPlugins = [{ kind: 'Checker', name: CHECKER, factory: createChecker }];

/** By what the mutant is, and not by its number, so that a change elsewhere leaves the choice as it was. */
export function isChosen(mutant: Omit<FoundMutant, 'id'>, { percent, seed }: Share): boolean {
  const { fileName, mutatorName, replacement, location } = mutant;
  const file = fileName.slice(fileName.lastIndexOf('/src/'));
  const what = [seed, file, location.start.line, location.start.column, mutatorName, replacement].join('\n');
  const number = createHash('sha256').update(what).digest().readUInt32BE(0);
  return (100 * number) / HASH_RANGE < percent;
}

/**
 * Mutates the sources in a copy of the project and runs each chosen mutant against those tests that reach it. `found`
 * counts those that were not chosen, too.
 */
export async function runStryker(run: StrykerRun): Promise<{ tried: readonly Mutant[]; found: number }> {
  const { Stryker } = (await import(pathToFileURL(join(run.stryker, 'dist', 'src', 'index.js')).href)) as {
    Stryker: new (options: object) => { runMutationTest(): Promise<readonly Mutant[]> };
  };
  const mutants = await new Stryker(optionsOf(run)).runMutationTest();
  return { tried: mutants.filter(({ status }) => status !== NOT_CHOSEN), found: mutants.length };
}

function optionsOf({ project, sources, judges, without, workFolder, incrementalFile, share }: StrykerRun): object {
  const quickStart = `--require=${join(project, 'scripts', 'quick-start.cjs')}`;
  const skipped = [OTHER_ENGINE, ...(without === undefined ? [] : [without])].map(
    (name) => `--test-skip-pattern=${name}`,
  );
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
    // What does not come to an end counts as noticed: a busy machine must not look like that.
    timeoutMS: 60_000,
    timeoutFactor: 4,
    dryRunTimeoutMinutes: 30,
    tempDirName: workFolder,
    cleanTempDir: 'always',
    ignorePatterns: ['/dist', '/data', '/.tmp', '/coverage'],
    // Node takes the types away without looking at them: nothing is put before a file, and no tsconfig is rewritten.
    disableTypeChecks: false,
    plugins: ['@stryker-mutator/*', import.meta.filename],
    checkers: [CHECKER],
    share,
    tsconfigFile: 'none',
    reporters: ['progress-append-only'],
    allowConsoleColors: false,
    warnings: { slow: false, unknownOptions: false },
    logLevel: 'warn',
    ...(incrementalFile === undefined ? {} : { incremental: true, incrementalFile }),
  };
}
