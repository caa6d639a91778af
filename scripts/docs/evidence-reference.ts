import { readFileSync } from 'node:fs';

interface PromiseRow {
  readonly promise: string;
  /** The section of docs/measurements.md, and in it the rows that say how much was tried, and those that say what came out. */
  readonly section: string;
  readonly tried: readonly string[];
  readonly result: readonly string[];
}

const JOBS_KEPT = ['acknowledged jobs lost', 'jobs that ended in two ways'];

/** What Trestle promises, and which measured rows show it. */
export const PROMISES: readonly PromiseRow[] = [
  {
    promise: 'A job that was acknowledged survives kill -9, and ends once.',
    section: 'jobs',
    tried: ['kills under load', 'submits acknowledged'],
    result: [...JOBS_KEPT, 'ready after a kill, at most'],
  },
  {
    promise: 'With several instances on one PostgreSQL, another instance takes over the work of one that dies.',
    section: 'takeover',
    tried: ['bridges killed, of three', 'submits acknowledged'],
    result: [...JOBS_KEPT, 'settled by another bridge after at most', 'jobs that ran twice at the same time'],
  },
  {
    promise: 'Turns, jobs and streams on three instances survive kills, freezes, outages, network cuts and restarts.',
    section: 'cluster',
    tried: ['turns', 'jobs', 'streamed answers'],
    result: ['violations'],
  },
  {
    promise: 'An instance that dies is replaced for everyone who follows its sessions.',
    section: 'fan-out',
    tried: ['sockets that followed', 'sessions whose instance was killed'],
    result: ['violations', 'from kill to the first stored end'],
  },
  {
    promise: 'Rolling restarts behind a load balancer cost no caller anything.',
    section: 'restarts',
    tried: ['restarts under load, one of three after the other', 'calls without a stream', 'streams'],
    result: [
      'of them failed behind a client that tries again',
      'calls and streams cut in the middle',
      'streams that did not end whole',
      ...JOBS_KEPT,
    ],
  },
  {
    promise: 'An outage of PostgreSQL costs errors only while it lasts.',
    section: 'database',
    tried: ['outages: stop and start', 'outages: restart', 'outages: end of all connections'],
    result: [...JOBS_KEPT, 'errors outside of every outage', 'a submit acknowledged after an outage, at most'],
  },
  {
    promise: 'A full disk refuses work, keeps what it has, and recovers without a restart.',
    section: 'disk-full',
    tried: ['times that the disk was full', 'submits acknowledged'],
    result: [...JOBS_KEPT, 'times that it did not go on by itself', 'exits of the program'],
  },
  {
    promise: 'A call of the store that fails, wherever it is, breaks no rule.',
    section: 'store-calls',
    tried: ['calls of the store that failed, one in each run'],
    result: ['places in the sources whose call failed', ...JOBS_KEPT, 'runs after which something did not hold'],
  },
  {
    promise: 'A session that is interrupted by kill -9 can be continued, and shows every stored update once.',
    section: 'sessions',
    tried: ['kills in the middle of turns', 'turns stored', 'updates stored', 'resumes'],
    result: [
      'updates out of order or seen twice',
      'stored updates not seen',
      'turns without exactly one end',
      'sessions that could not be continued',
      'updates seen and lost by a kill',
      'the oldest of them, before the kill',
    ],
  },
  {
    promise: 'Forwarding between nodes starts no turn twice, whatever the network does.',
    section: 'forwarding',
    tried: ['turns answered', 'turns of unknown outcome'],
    result: ['answered turns lost', 'turns run twice', 'sessions on two nodes', 'told that nothing was started'],
  },
  {
    promise: 'A call is metered once, and a budget holds.',
    section: 'metering',
    tried: ['kills under load', 'calls answered by the upstream'],
    result: ['calls recorded twice', 'calls lost by a clean stop', 'budgets exceeded by more than was lost'],
  },
  {
    promise: 'Limits and budgets hold across three instances that are killed and cut off.',
    section: 'limits',
    tried: ['calls to three instances', 'calls answered'],
    result: ['limits or budgets exceeded'],
  },
  {
    promise: 'A run of a hundred agents survives the kill of its process, and asks no agent again that had finished.',
    section: 'many',
    tried: ['members of all runs', 'runs that another process took up', 'members that were asked again'],
    result: ['violations'],
  },
  {
    promise: 'A login, a refresh token and a one-time code are used once, also when the program is killed.',
    section: 'accounts',
    tried: ['kills under load', 'calls: login', 'calls: refresh'],
    result: ['what was acknowledged and is lost, undone or given twice', 'ready after a kill, at most'],
  },
  {
    promise: 'Jumps of the clock neither end jobs too early nor let a code be used again.',
    section: 'clock',
    tried: ['jumps of the clock', 'codes of the second factor that were tried'],
    result: ['a job that timed out too early, by at most', 'of those accepted again', 'exits of the program'],
  },
  {
    promise: 'A stream that the model API breaks ends with an error, never with a false `[DONE]`.',
    section: 'upstream',
    tried: ['streams broken by the upstream', 'streams left by their client'],
    result: [
      'false [DONE]',
      'hung beyond the idle timeout',
      'upstream closed after its client left, p99',
      'sockets leaked',
    ],
  },
  {
    promise: 'A thousand streams at a time lose nothing and keep their order.',
    section: 'streams',
    tried: ['streams', 'words in them'],
    result: ['streams with something lost or out of order', 'first word later than that, p95'],
  },
  {
    promise: 'Clients that read or write slowly harm no other client.',
    section: 'slow',
    tried: ['sockets that do not read', 'connections that drip'],
    result: [
      'while those do not, p99',
      'calls of the others beside them, p99',
      'calls of healthy clients not answered',
    ],
  },
  {
    promise: 'Ten thousand authenticated sockets stay open and responsive.',
    section: 'sockets',
    tried: ['authenticated sockets', 'calls over all of them'],
    result: ['of them lost', 'answered after, p99', 'memory (RSS), at most'],
  },
  {
    promise: 'Memory and open files do not grow under steady load.',
    section: 'soak',
    tried: ['calls'],
    result: [
      'of them ended otherwise than they must',
      'growth from the second fifth',
      'open files and sockets, the same',
    ],
  },
  {
    promise: 'No order of events, kill or stop breaks a rule of jobs, sessions, attempts or accounts.',
    section: 'simulation',
    tried: ['seeds', 'jobs: kills', 'sessions: kills', 'accounts: logins'],
    result: ['runs in which something did not hold'],
  },
  {
    promise: 'The same for several instances on one database, with freezes and outages.',
    section: 'instances',
    tried: ['seeds', 'instances: kills', 'instances: freezes'],
    result: ['runs in which something did not hold'],
  },
  {
    promise: 'No input crashes or hangs a parser.',
    section: 'fuzz',
    tried: ['tries'],
    result: ['files in which something did not hold', 'a single try, at most'],
  },
];

const MEASUREMENTS = new URL('../../docs/measurements.md', import.meta.url);

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
  const rows = PROMISES.map((row) => {
    const section = sections.get(row.section);
    if (section === undefined) throw new Error(`docs/measurements.md has no section "${row.section}"`);
    return `| ${[row.promise, triedOf(row, section), resultOf(row, section), linkTo(row, section)].join(' | ')} |`;
  });
  return `# Evidence

Written by \`npm run docs\` from [the measurements](measurements.md); do not edit.

Each row is a promise and the long run that tries to break it: something is killed, cut off, filled up or slowed down, again and again, and what callers were told is compared with
what is stored at the end. The last column leads to all figures of the run, with its command, so that you can repeat it. How fast Trestle is, and which goals it misses, is in
[the measurements](measurements.md#missed-goals).

| promise | tried with | result | run |
| --- | --- | --- | --- |
${rows.join('\n')}
`;
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

function triedOf({ tried }: PromiseRow, section: MeasuredSection): string {
  return tried
    .map((name) => rowNamed(section, name))
    .map(({ name, measured }) => `${name}: ${measured}`)
    .join('; ');
}

function resultOf({ result }: PromiseRow, section: MeasuredSection): string {
  const shown = result
    .map((name) => rowNamed(section, name))
    .map(({ name, measured, goal, verdict }) => {
      const missed = verdict === 'met' ? '' : ` (goal ${goal}, **missed**)`;
      return `${name}: ${measured}${missed}`;
    });
  return shown.join('; ');
}

/** The row whose name begins so. */
function rowNamed({ run, rows }: MeasuredSection, start: string): MeasuredRow {
  const row = rows.find(({ name }) => name === start) ?? rows.find(({ name }) => name.startsWith(start));
  if (row === undefined) throw new Error(`docs/measurements.md has no row "${start}" (${run})`);
  return row;
}

function linkTo({ section }: PromiseRow, { run }: MeasuredSection): string {
  const date = / on (\d{4}-\d{2}-\d{2})/.exec(run)?.[1];
  return `[${section}](measurements.md#${section})${date === undefined ? '' : `, ${date}`}`;
}
