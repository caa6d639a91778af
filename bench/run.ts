import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PROGRAM_VERSION } from '../src/system/environment.ts';
import { accountsSuite, growthSuite } from './accounts/suite.ts';
import { agentTasksSuite } from './agent-tasks/suite.ts';
import { agentsSuite } from './agents/suite.ts';
import { bridgeSuite } from './bridge/suite.ts';
import { budgetSuite } from './budget/suite.ts';
import { completionsSuite } from './completions/suite.ts';
import { consoleSuite } from './console/suite.ts';
import { jobsSuite } from './jobs/suite.ts';
import { platformSuite } from './platform/suite.ts';
import { drawChart } from './report/chart.ts';
import type { Table } from './report/figure.ts';
import { toMarkdown } from './report/markdown.ts';
import { chartName, type SuiteReport, updatePage } from './report/measurements-page.ts';
import { workbenchSuite } from './workbench/suite.ts';
import { workersSuite } from './workers/suite.ts';

export interface SuiteOptions {
  /** Fewer and shorter rounds: a sign, not a result. */
  readonly quick: boolean;
}

/** All suites by the name that `npm run bench NAME` takes. */
const SUITES: Readonly<Record<string, (options: SuiteOptions) => Promise<readonly Table[]>>> = {
  platform: platformSuite,
  bridge: bridgeSuite,
  agents: agentsSuite,
  workbench: workbenchSuite,
  jobs: jobsSuite,
  completions: completionsSuite,
  accounts: accountsSuite,
  growth: growthSuite,
  workers: workersSuite,
  console: consoleSuite,
  budget: budgetSuite,
  'agent-tasks': agentTasksSuite,
};

const PAGE = fileURLToPath(new URL('../docs/measurements.md', import.meta.url));
const CHARTS = fileURLToPath(new URL('../docs/measurements/', import.meta.url));

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: 'boolean', default: false }, write: { type: 'boolean', default: false } },
});
const unknown = positionals.filter((name) => !Object.hasOwn(SUITES, name));
if (unknown.length > 0) {
  process.stderr.write(`no suite named ${unknown.join(', ')}; there is ${Object.keys(SUITES).join(', ')}\n`);
  process.exit(2);
}
const started = performance.now();
const reports: SuiteReport[] = [];
for (const suite of positionals.length === 0 ? Object.keys(SUITES).filter(isMeasured) : positionals) {
  const suiteStarted = performance.now();
  const tables = (await SUITES[suite]?.(values)) ?? [];
  process.stdout.write(`${tables.map(toMarkdown).join('\n')}\n${suite} took ${secondsSince(suiteStarted)} s\n\n`);
  reports.push(reportOf(suite, tables));
}
const missed = reports.flatMap(({ tables }) => tables.flatMap(({ figures }) => figures)).filter(({ met }) => !met);
process.stdout.write(missed.length === 0 ? 'every goal met' : `${missed.length} goals missed`);
process.stdout.write(`, ${secondsSince(started)} s in all\n`);
if (values.write) await write();
process.exit(0);

/** The tasks of agents are about a model, and run when they are named. */
function isMeasured(suite: string): boolean {
  return suite !== 'agent-tasks';
}

function reportOf(suite: string, tables: readonly Table[]): SuiteReport {
  const memory = Math.round(totalmem() / 2 ** 30);
  return {
    suite,
    command: `npm run bench -- ${[...positionals, '--write', ...(values.quick ? ['--quick'] : [])].join(' ')}`,
    isQuick: values.quick,
    date: new Date().toISOString().slice(0, 10),
    machine: `${cpus().length} cores (${cpus()[0]?.model.trim() || arch()}), ${memory} GiB, ${platform()} ${release()}; clients and servers share it.`,
    versions: `Node ${process.version}, trestle ${PROGRAM_VERSION}.`,
    tables,
  };
}

/** The page, the pictures of the tables that were measured, and no picture that the page does not show. */
async function write(): Promise<void> {
  const page = updatePage(await readFile(PAGE, 'utf8'), reports, Object.keys(SUITES));
  await writeFile(PAGE, page);
  await mkdir(CHARTS, { recursive: true });
  for (const table of reports.flatMap(({ tables }) => tables)) {
    await writeFile(join(CHARTS, chartName(table.title)), drawChart(table));
  }
  for (const file of await readdir(CHARTS)) {
    if (!page.includes(`(measurements/${file})`)) await rm(join(CHARTS, file));
  }
}

function secondsSince(start: number): number {
  return Math.round((performance.now() - start) / 1000);
}
