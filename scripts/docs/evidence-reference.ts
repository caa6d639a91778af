import { readFileSync } from 'node:fs';

/** A row of docs/measurements.md by its name, and what the page says instead where the name needs its neighbours to be understood. */
type Figure = string | readonly [row: string, says: string];

export interface PromiseRow {
  readonly promise: string;
  /** The section of docs/measurements.md, and in it the rows that say how much was tried, and those that say what came out. */
  readonly section: string;
  readonly tried: readonly Figure[];
  readonly result: readonly Figure[];
}

const ACKNOWLEDGED: Figure = ['submits acknowledged', 'jobs acknowledged'];
const JOBS_KEPT: readonly Figure[] = [['acknowledged jobs lost', 'jobs lost'], 'jobs that ended in two ways'];
const EXITS: Figure = ['exits of the program', 'exits of Trestle'];
const VIOLATIONS: Figure = ['violations', 'broken rules'];
const BROKEN_RUNS: Figure = ['runs in which something did not hold', 'runs that broke a rule'];

/** What Trestle promises, and which measured rows show it. */
export const PROMISES: readonly PromiseRow[] = [
  {
    promise: 'A job that was acknowledged survives kill -9, and ends once.',
    section: 'jobs',
    tried: ['kills under load', ACKNOWLEDGED],
    result: [...JOBS_KEPT, ['ready after a kill, at most', 'time until ready after a kill, at most']],
  },
  {
    promise: 'With several instances on one PostgreSQL, another instance takes over the work of one that dies.',
    section: 'takeover',
    tried: [['bridges killed, of three', 'kills of one of three instances'], ACKNOWLEDGED],
    result: [
      ...JOBS_KEPT,
      'jobs that ran twice at the same time',
      ['settled by another bridge after at most', 'time until another instance had taken over, at most'],
    ],
  },
  {
    promise: 'Two bridges on one PostgreSQL share the waiting jobs, and run each of them once.',
    section: 'shared-jobs',
    tried: [['jobs on two bridges', 'jobs']],
    result: [['jobs run twice', 'jobs that ran twice']],
  },
  {
    promise: 'Turns, jobs and streams on three instances survive kills, freezes, outages, network cuts and restarts.',
    section: 'cluster',
    tried: ['turns', 'jobs', ['streamed answers', 'streams']],
    result: [VIOLATIONS],
  },
  {
    promise: 'An instance that dies is replaced for everyone who follows its sessions.',
    section: 'fan-out',
    tried: [['sockets that followed', 'followers'], 'sessions whose instance was killed'],
    result: [
      VIOLATIONS,
      ['from kill to the first stored end', 'time from a kill to the first stored end'],
      ['from kill to the last stored end', 'and to the last'],
    ],
  },
  {
    promise: 'Rolling restarts behind a load balancer cost nothing to a client that retries.',
    section: 'restarts',
    tried: [
      ['restarts under load, one of three after the other', 'restarts of one of three instances'],
      'calls without a stream',
      'streams',
    ],
    result: [
      ['of them failed behind a client that tries again', 'calls that failed despite retries'],
      'calls and streams cut in the middle',
      ['streams that did not end whole', 'incomplete streams'],
      ...JOBS_KEPT,
    ],
  },
  {
    promise: 'An outage of PostgreSQL costs errors only while it lasts.',
    section: 'database',
    tried: [
      ['outages: stop and start', 'stops and starts'],
      ['outages: restart', 'restarts'],
      ['outages: end of all connections', 'ends of all connections'],
    ],
    result: [
      ...JOBS_KEPT,
      ['errors outside of every outage', 'errors outside of outages'],
      ['a submit acknowledged after an outage, at most', 'time until a job was accepted again, at most'],
    ],
  },
  {
    promise: 'A full disk refuses work, keeps what it has, and recovers without a restart.',
    section: 'disk-full',
    tried: [['times that the disk was full', 'full disks'], ACKNOWLEDGED],
    result: [...JOBS_KEPT, ['times that it did not go on by itself', 'full disks without recovery'], EXITS],
  },
  {
    promise: 'A failed call of the store breaks no rule, wherever in the sources it is.',
    section: 'store-calls',
    tried: [['calls of the store that failed, one or two in each run', 'failed calls of the store']],
    result: [
      ['places of src/bridge whose call failed', 'places in the bridge that were tried'],
      ['places of src/accounts whose call failed', 'in accounts'],
      ['places of src/completions whose call failed', 'in completions'],
      ...JOBS_KEPT,
      ['runs after which something did not hold', 'runs that broke a rule'],
    ],
  },
  {
    promise: 'A session that is interrupted by kill -9 can be continued, and shows every stored update once.',
    section: 'sessions',
    tried: [
      ['kills in the middle of turns', 'kills during turns'],
      ['turns stored', 'turns'],
      'updates stored',
      ['resumes', 'resumed connections'],
    ],
    result: [
      ['stored updates not seen', 'stored updates that did not arrive'],
      ['updates out of order or seen twice', 'updates out of order or repeated'],
      'turns without exactly one end',
      'sessions that could not be continued',
      ['updates seen and lost by a kill', 'updates that a client saw before they were stored, and a kill lost'],
      ['the oldest of them, before the kill', 'age of the oldest of these at the kill'],
      ['ready after a kill, at most', 'time until ready after a kill, at most'],
    ],
  },
  {
    promise: 'Forwarding between nodes starts no turn twice, whatever the network does.',
    section: 'forwarding',
    tried: [
      ['turns answered', 'turns with a response'],
      ['turns of unknown outcome', 'turns whose response was lost'],
    ],
    result: [
      ['answered turns lost', 'turns lost'],
      'turns run twice',
      'sessions on two nodes',
      ['told that nothing was started, after at most', 'time until a caller knew that nothing had started, at most'],
    ],
  },
  {
    promise: 'A call is metered once, except in the last second before a kill, and a budget holds.',
    section: 'metering',
    tried: ['kills under load', ['calls answered by the upstream', 'calls']],
    result: [
      'calls recorded twice',
      ['calls lost by a clean stop', 'records lost by a clean stop'],
      ['calls lost by kills', 'records lost by kills'],
      ['the oldest of them, before the kill', 'age of the oldest of these at the kill'],
      ['ready after a stop, at most', 'time until ready after a stop, at most'],
      ['budgets exceeded by more than was lost', 'budgets exceeded by more than the kills lost'],
    ],
  },
  {
    promise: 'Limits and budgets hold across three instances that are killed and cut off.',
    section: 'limits',
    tried: [['calls to three instances', 'calls'], 'calls answered'],
    result: ['limits or budgets exceeded'],
  },
  {
    promise: 'A run of a hundred agents survives the kill of its process, and repeats no finished step.',
    section: 'many',
    tried: [
      ['members of all runs', 'steps of all runs'],
      ['runs that another process took up', 'runs that another process continued'],
      ['members that were asked again, unfinished ones', 'unfinished steps that ran again'],
    ],
    result: [VIOLATIONS],
  },
  {
    promise: 'A login, a refresh token and a one-time code are used once, also when the program is killed.',
    section: 'accounts',
    tried: ['kills under load', ['calls: login', 'logins'], ['calls: refresh', 'refreshes']],
    result: [
      ['what was acknowledged and is lost, undone or given twice', 'acknowledged changes lost, undone or repeated'],
      ['ready after a kill, at most', 'time until ready after a kill, at most'],
    ],
  },
  {
    promise: 'Jumps of the clock neither end jobs too early nor let a code be used again.',
    section: 'clock',
    tried: ['jumps of the clock', ['codes of the second factor that were tried', 'codes of the second factor']],
    result: [
      ['a job that timed out too early, by at most', 'jobs that timed out too early, by at most'],
      ['of those accepted again', 'codes accepted again'],
      EXITS,
    ],
  },
  {
    promise: 'A stream that the model API breaks ends with an error, never with a false `[DONE]`.',
    section: 'upstream',
    tried: [
      ['streams broken by the upstream', 'streams broken by the model API'],
      ['streams left by their client', 'streams that their client left'],
    ],
    result: [
      ['false [DONE]', 'false `[DONE]`'],
      ['hung beyond the idle timeout', 'streams that hung beyond the idle timeout'],
      ['upstream closed after its client left, p99', 'time until the model API was left too, p99'],
      'sockets leaked',
    ],
  },
  {
    promise: 'A thousand streams at a time lose nothing and keep their order.',
    section: 'streams',
    tried: ['streams', ['words in them', 'words']],
    result: [
      'streams with something lost or out of order',
      ['first word later than that, p95', 'delay added to the first word, p95'],
    ],
  },
  {
    promise: 'Clients that read or write slowly harm no other client.',
    section: 'slow',
    tried: ['sockets that do not read', ['connections that drip', 'connections that send a byte at a time']],
    result: [
      ['while those do not, p99', 'time of a call beside sockets that do not read, p99'],
      ['calls of the others beside them, p99', 'time of a call beside connections that send slowly, p99'],
      ['calls of healthy clients not answered', 'calls of others without a response'],
    ],
  },
  {
    promise: 'Ten thousand authenticated sockets stay open and responsive.',
    section: 'sockets',
    tried: ['authenticated sockets', ['calls over all of them', 'calls']],
    result: [
      ['of them lost', 'sockets lost'],
      ['answered after, p99', 'time of a call, p99'],
      ['memory (RSS), at most', 'memory, at most'],
    ],
  },
  {
    promise: 'Memory and open files do not grow under steady load.',
    section: 'soak',
    tried: ['calls', 'turns, jobs, logins and lists among them'],
    result: [
      ['of them ended otherwise than they must', 'calls with a wrong end'],
      ['P-40: growth from the second fifth of the time to the last', 'growth of memory'],
      ['open files and sockets, the same', 'growth of open files and sockets'],
    ],
  },
  {
    promise: 'No order of events, kill or stop breaks a rule of jobs, sessions, model calls or accounts.',
    section: 'simulation',
    tried: [
      ['seeds', 'simulated runs'],
      ['jobs: kills', 'kills (jobs)'],
      ['sessions: kills', 'kills (sessions)'],
      ['accounts: kills', 'kills (accounts)'],
    ],
    result: [BROKEN_RUNS],
  },
  {
    promise: 'Several simulated instances on one database break no rule, with kills, freezes and outages.',
    section: 'instances',
    tried: [
      ['seeds', 'simulated runs'],
      ['instances: kills', 'kills'],
      ['instances: freezes', 'freezes'],
      ['instances: outages', 'outages'],
    ],
    result: [BROKEN_RUNS],
  },
  {
    promise: 'No generated input breaks an endpoint, a dialect or a parser.',
    section: 'fuzz',
    tried: [['tries', 'inputs']],
    result: [
      ['files in which something did not hold', 'files of properties with a failure'],
      ['a single try, at most', 'time of one input, at most'],
    ],
  },
  {
    promise: 'No input crashes or hangs a parser.',
    section: 'parsers',
    tried: [['tries', 'inputs']],
    result: [
      ['files in which something did not hold', 'files of properties with a failure'],
      ['a single try, at most', 'time of one input, at most'],
    ],
  },
];

const MEASUREMENTS = new URL('../../docs/measurements.md', import.meta.url);
/** The last cell of a row whose goal was missed. */
export const MISSED = '**missed**';

interface MeasuredRow {
  readonly name: string;
  readonly measured: string;
  readonly goal: string;
  readonly verdict: string;
}

interface MeasuredSection {
  /** The sentence above its table: by which command, when, of which commit. */
  readonly run: string;
  readonly rows: readonly MeasuredRow[];
}

/** docs/evidence.md: what is promised, with the figures of docs/measurements.md that show whether it holds. */
export function evidenceReference(): string {
  const sections = faultSections(readFileSync(MEASUREMENTS, 'utf8'));
  return `# Evidence

Written by \`npm run docs\` from [the measurements](measurements.md); do not edit.

Each row has a promise and the long run that tries to break it. The run kills, cuts off, fills up or slows down something, again and again, and compares the responses that callers got with
what is stored at the end. A figure that misses its goal is marked. The last column links to all figures of the run and its command, so that you can repeat it. How fast Trestle is, and which
goals it misses, is in [the measurements](measurements.md#missed-goals).

| Promise | Tried with | Result | Run |
| --- | --- | --- | --- |
${PROMISES.map((promise) => promiseLine(promise, sections)).join('\n')}
`;
}

/** The line of the table for a promise. */
export function promiseLine(
  { promise, section: name, tried, result }: PromiseRow,
  sections: ReadonlyMap<string, MeasuredSection>,
): string {
  const section = sections.get(name);
  if (section === undefined) throw new Error(`docs/measurements.md has no section "${name}"`);
  const cellOf = (figures: readonly Figure[]): string =>
    figures.map((figure) => textOf(figure, section, name)).join('; ');
  const date = / on (\d{4}-\d{2}-\d{2})/.exec(section.run)?.[1];
  const link = `[${name}](measurements.md#${name})${date === undefined ? '' : `, ${date}`}`;
  return `| ${[promise, cellOf(tried), cellOf(result), link].join(' | ')} |`;
}

/** The name of the row that a figure is read from. */
export function rowNameOf(figure: Figure): string {
  return typeof figure === 'string' ? figure : figure[0];
}

/** A figure with its words; a goal is named only where it was missed. */
function textOf(figure: Figure, { rows }: MeasuredSection, section: string): string {
  const name = rowNameOf(figure);
  const row = rows.find((each) => each.name === name);
  if (row === undefined) throw new Error(`docs/measurements.md has no row "${name}" in its section "${section}"`);
  const says = typeof figure === 'string' ? figure : figure[1];
  const missed = row.verdict === MISSED ? ` (**missed**, goal: ${row.goal})` : '';
  // Counts by outcome are written as "145: 123 ok, 22 unknown".
  return `${says}: ${row.measured.replace(/^(\d+): (.+)$/, '$1 ($2)')}${missed}`;
}

/** The sections of runs of faults, by name. */
export function faultSections(page: string): ReadonlyMap<string, MeasuredSection> {
  const faults = page.split(/^## /m).find((part) => part.startsWith('Faults\n')) ?? '';
  const sections = faults.split(/^### /m).slice(1);
  return new Map(
    sections.map((text) => {
      const [name = '', ...lines] = text.split('\n');
      const run = lines.find((line) => line.startsWith('Written by')) ?? '';
      return [name, { run, rows: lines.flatMap(rowOf) }] as const;
    }),
  );
}

function rowOf(line: string): readonly MeasuredRow[] {
  const [, name = '', measured = '', goal = '', verdict = ''] = line.split('|').map((cell) => cell.trim());
  return !line.startsWith('| ') || name === 'what' || name.startsWith('---') ? [] : [{ name, measured, goal, verdict }];
}
