import { writeFile } from 'node:fs/promises';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PROGRAM_VERSION } from '../src/system/release.ts';
import { accountsSuite } from './accounts/suite.ts';
import { bridgeSuite } from './bridge/suite.ts';
import { completionsSuite } from './completions/suite.ts';
import { jobsSuite } from './jobs/suite.ts';
import { platformSuite } from './platform/suite.ts';
import type { Table } from './report/figure.ts';
import { toMarkdown } from './report/markdown.ts';

export interface SuiteOptions {
  /** Fewer and shorter rounds: a sign, not a result. */
  readonly quick: boolean;
}

/** All suites by the name that `npm run bench NAME` takes. */
const SUITES: Readonly<Record<string, (options: SuiteOptions) => Promise<readonly Table[]>>> = {
  platform: platformSuite,
  bridge: bridgeSuite,
  jobs: jobsSuite,
  completions: completionsSuite,
  accounts: accountsSuite,
};

const REPORT = fileURLToPath(new URL('../docs/measurements.md', import.meta.url));

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: 'boolean', default: false }, write: { type: 'boolean', default: false } },
});
const unknown = positionals.filter((name) => !Object.hasOwn(SUITES, name));
if (unknown.length > 0) {
  process.stderr.write(`no suite named ${unknown.join(', ')}; there is ${Object.keys(SUITES).join(', ')}\n`);
  process.exit(2);
}
const names = positionals.length === 0 ? Object.keys(SUITES) : positionals;
const tables: Table[] = [];
for (const name of names) {
  for (const table of (await SUITES[name]?.(values)) ?? []) {
    process.stdout.write(`${toMarkdown([table])}\n`);
    tables.push(table);
  }
}
const missed = tables.flatMap(({ figures }) => figures).filter(({ met }) => !met);
process.stdout.write(missed.length === 0 ? 'every goal met\n' : `${missed.length} goals missed\n`);
if (values.write) await writeFile(REPORT, reportText());
process.exit(0);

function reportText(): string {
  const command = `npm run bench -- ${[...names, '--write', ...(values.quick ? ['--quick'] : [])].join(' ')}`;
  return `# Measurements

Written by \`${command}\`. Every figure stands beside its bound, measured in the same run on the same machine; rounds of
both take turns, ratios are taken round by round and their median is shown with half the spread of the middle half.
What lies close to its goal, and why: [notes](measurements-notes.md).

- Machine: ${cpus().length} cores (${cpus()[0]?.model.trim() || arch()}), ${Math.round(totalmem() / 2 ** 30)} GiB, ${platform()} ${release()}; clients and servers share it.
- Node ${process.version}, trestle ${PROGRAM_VERSION}.

${toMarkdown(tables)}`;
}
