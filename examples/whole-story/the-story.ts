import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { agentsRoot } from '../../scripts/agents/agents-root.ts';
import { installedPrograms } from '../../src/bridge/agents/agent-packages.ts';
import { createTrestleClient, type TrestleClient } from '../../src/client/trestle-client.ts';
import { type Account, call, invite, type Person } from './account.ts';
import { chapter, expect, say, until } from './narration.ts';
import { dataDirectoryOf, endEveryTrestle, type RunningTrestle, runTrestle, startTrestle } from './running-trestle.ts';
import { BEGINNING, PRICES, type StoryModel, startStoryModel } from './story-model.ts';
import { isRising, missedBy, storedUpdates, watch } from './updates-seen.ts';

const LIMIT_MS = 90_000;
const MODEL = 'story';
const PASSWORD = 'copper kettle 47 over the pass';
/** Of the plan of Ann, in USD. */
const BUDGET = 2;
const MAX_REPORTS = 40;
const ADMIN: Account = { email: 'root@example.org', password: PASSWORD };

/** A task whose agent asks before it works. */
export interface Task {
  /** Where the person works, and answers. */
  readonly place: 'console' | 'terminal';
  readonly url: string;
  readonly person: Person;
  readonly agent: string;
  readonly folder: string;
  readonly prompt: string;
}

/** What people do themselves in the story: by hand in a browser and a terminal, or by calls over HTTP. */
export interface Hands {
  /** Creates the first administrator with the link of the first start, and returns the token of a login. */
  setUp(url: string, link: string, admin: Account): Promise<string>;
  /** Starts a task, allows what its agent asks for, and returns the id of the session when the task is done. */
  allow(task: Task): Promise<string>;
  /** A moment to look at: a page of the console, as this account sees it. */
  look(moment: string, url: string, account: Account, page: string): Promise<void>;
}

export interface StoryOptions {
  /** Of an empty PostgreSQL database. */
  readonly database: string;
  /** For everything that the story writes. */
  readonly folder: string;
  /** Without them the built-in agent does their work. */
  readonly hasRealAgents: boolean;
  readonly hands: Hands;
  readonly cleanUps: (() => unknown)[];
}

interface Stage extends StoryOptions {
  readonly model: StoryModel;
  readonly instances: readonly [RunningTrestle, RunningTrestle, RunningTrestle];
  /** Of the first instance. */
  readonly url: string;
  readonly admin: string;
  readonly ann: Person;
  readonly ben: Person;
  /** The agents of Ann and Ben. */
  readonly agents: readonly [string, string];
  /** A repository of each of them. */
  readonly folders: readonly [string, string];
  clientOf(person: Person, instance?: number): TrestleClient;
}

export async function tellWholeStory(options: StoryOptions): Promise<void> {
  const stage = await setTheStage(options);
  await workAndUndo(stage);
  await schedule(stage);
  await race(stage);
  await metered(stage, 'The model calls of all agents, metered on their owners');
  await reachBudget(stage);
  await killOneOfThree(stage);
  await metered(stage, 'What everything has cost, to the cent');
  const [one, two] = stage.instances;
  const codes = await Promise.all([one.end('SIGTERM'), two.end('SIGTERM')]);
  expect(
    codes.every((code) => code === 0),
    'the other two instances end in good order',
    codes,
  );
}

async function setTheStage(options: StoryOptions): Promise<Stage> {
  const { folder, cleanUps, hands, hasRealAgents } = options;
  const model = await startStoryModel();
  cleanUps.push(() => model.stop(), endEveryTrestle);

  chapter('Three instances on one PostgreSQL, and the first administrator');
  const instances = await startInstances(options, model.url);
  const { url, setupLink } = instances[0];
  const admin = await hands.setUp(url, setupLink, ADMIN);
  say('the first administrator has set it up with the link of the first start, and logged in');

  chapter('Two people with plans');
  const ann = await invite(url, admin, { name: 'Ann', plan: 'small', password: PASSWORD });
  const ben = await invite(url, admin, { name: 'Ben', plan: 'large', password: PASSWORD });

  chapter('Agents from presets, installed by our own command');
  const agents = hasRealAgents ? (['claude', 'codex'] as const) : (['builtin', 'builtin'] as const);
  if (hasRealAgents)
    for (const id of ['claude', 'codex'] as const) await install(id, dataDirectoryOf(join(folder, 'one')));
  else say('not here: the built-in agent takes their place');

  const folders = [await newRepository(folder, ann), await newRepository(folder, ben)] as const;
  const clientOf = ({ token }: Person, instance = 0) => {
    const client = createTrestleClient({ url: instances[instance]?.url ?? url, token });
    cleanUps.push(() => client.close());
    return client;
  };
  return { ...options, model, instances, url, admin, ann, ben, agents, folders, clientOf };
}

async function startInstances({ folder, database }: StoryOptions, modelUrl: string): Promise<Stage['instances']> {
  const secret = () => randomBytes(32).toString('base64');
  const home = join(folder, 'home');
  await mkdir(home, { recursive: true });
  const secrets = {
    BRIDGE_AUTH_TOKEN: secret(),
    COMPLETIONS_MASTER_KEY: secret(),
    TRESTLE_SECRET_KEY: secret(),
    HOME: home,
  };
  const settings = {
    database: { url: database },
    cluster: { notice: '0s' },
    agents: { catalog: ['builtin', 'claude', 'codex'], default: 'builtin', model: MODEL, builtin: { model: MODEL } },
    // The operator of this machine trusts both: their agents run as the user of the program. In a sandbox, the agents of the
    // race could not see the file by which one waits for the other.
    // A busy machine may need a while to save a folder before a turn; without the saved folder there is no diff.
    bridge: {
      trust_users: true,
      sandbox: 'off',
      user_root: join(folder, 'people', '{user}'),
      checkpoints: { timeout: '1m' },
    },
    completions: {
      apis: { lab: { dialect: 'openai', base_url: modelUrl, api_key: 'none-needed' } },
      models: [{ name: MODEL, targets: [{ model: 'lab/story' }] }],
      prices: { 'lab/story': PRICES },
    },
    accounts: { registration: 'invite' },
    plans: {
      small: { models: [MODEL], bridge: true, budget: { usd: BUDGET, period: 'month' } },
      large: { models: [MODEL], bridge: true, budget: { usd: 50, period: 'month' } },
    },
  };
  const start = async (name: string) => {
    const own = join(folder, name);
    await mkdir(own);
    const started = await startTrestle({ folder: own, listen: '127.0.0.1:0', settings, secrets });
    say(`instance ${name} runs at ${started.url}`);
    return started;
  };
  // The first one creates the tables.
  const one = await start('one');
  return [one, ...(await Promise.all([start('two'), start('three')]))];
}

/** Claude's adapter is large, and a copy that `npm run test:agents` has installed will do. */
async function install(id: 'claude' | 'codex', dataDirectory: string): Promise<void> {
  const row = agentPackages.find((agent) => agent.id === id);
  if (row === undefined) throw new Error(`there is no preset of ${id}`);
  const bin = installedPrograms(dataDirectory);
  const copy = join(agentFolder(agentsRoot(process.env), row), row.program);
  if (id === 'claude' && existsSync(copy)) {
    await mkdir(bin, { recursive: true });
    await symlink(copy, join(bin, row.command));
    say(`claude is on this machine already: ${copy}`);
    return;
  }
  await runTrestle(['agents', 'install', id, '--data-dir', dataDirectory]);
  say(`trestle agents install ${id}`);
  expect(existsSync(join(bin, row.command)), `${id} is installed`, bin);
}

/** A repository with one commit, in the folder in which agents work for a person. */
async function newRepository(folder: string, { id, name }: Person): Promise<string> {
  const place = join(folder, 'people', id, 'project');
  await mkdir(place, { recursive: true });
  await writeFile(join(place, 'README.md'), `The project of ${name}.\n`);
  const git = (...args: readonly string[]) => promisify(execFile)('git', ['-C', place, ...args]);
  await git('init', '-q', '-b', 'main');
  await git('config', 'user.name', name);
  await git('config', 'user.email', `${name.toLowerCase()}@example.org`);
  await git('add', '.');
  await git('commit', '-q', '-m', 'first');
  return place;
}

/** Each is asked before the agent works; the work is shown as a diff, and undone. */
async function workAndUndo(stage: Stage): Promise<void> {
  const { url, hands, agents, folders, ann, ben, clientOf } = stage;
  for (const [index, person, place] of [
    [0, ann, 'console'],
    [1, ben, 'terminal'],
  ] as const) {
    const [agent, folder] = [agents[index], folders[index]];
    chapter(`${person.name} lets ${agent} work, and is asked in the ${place}`);
    const notes = join(folder, 'notes.txt');
    const prompt = `RUN echo "By the agent of ${person.name}" > notes.txt`;
    const sessionId = await hands.allow({ place, url, person, agent, folder, prompt });
    const { sessions, audit } = clientOf(person);
    const [turn] = (await sessions.turns(sessionId)).turns;
    expect(turn?.status === 'completed', `the turn of ${agent} is completed`, turn);
    expect((await readFile(notes, 'utf8')).includes(person.name), 'the file is written', notes);
    const { entries } = await audit({ sessionId });
    expect(
      entries.some(({ decision }) => decision === 'allowed'),
      `the audit log has the answer of ${person.name}`,
      entries,
    );
    const { unified } = await sessions.diff(sessionId, 'notes.txt');
    expect(unified.includes(`+By the agent of ${person.name}`), 'the change is shown as a diff', unified);
    await hands.look(`diff-${place}`, url, person, `/console/sessions/${sessionId}`);
    const { restored } = await sessions.undo(sessionId, turn.turnId);
    expect(!existsSync(notes), 'and undone', restored);
  }
}

async function schedule({ ben, clientOf, folders, hands, url }: Stage): Promise<void> {
  chapter('A task for every morning');
  const { schedules, jobs } = clientOf(ben);
  const task = {
    taskPrompt: 'RUN git log --oneline | head -3',
    workingDirectory: folders[1],
    routing: { explicitProviderId: 'builtin' },
  };
  const made = await schedules.create({ name: 'what is new', cron: '0 8 * * 1-5', timezone: 'Europe/Berlin', task });
  say(`the next time is ${new Date(made.nextAt ?? 0).toISOString()}`);
  const { jobId } = await schedules.run(made.scheduleId);
  const job = await until('the job of the schedule has ended', LIMIT_MS, async () => {
    const seen = await jobs.get(jobId);
    return seen.status === 'completed' || seen.status === 'failed' ? seen : undefined;
  });
  const output = job.result?.output ?? '';
  expect(job.status === 'completed' && output.includes('first'), 'its job is completed, and names the commit', job);
  await hands.look('schedules', url, ben, '/console/schedules');
}

/** The losing agent begins before the other one ends, so no agent wins by an early start. */
async function race({ ben, agents, clientOf, folder, folders, hands, url }: Stage): Promise<void> {
  chapter('Two agents race, each in a worktree of its own');
  const sign = join(folder, 'people', ben.id, 'the-other-one-works');
  const { session, sessions } = { session: clientOf(ben).session('race'), sessions: clientOf(ben).sessions };
  const turn = session.start('Write winner.txt', {
    multiAgent: true,
    workingDirectory: folders[1],
    routing: {
      orchestrationMode: 'race',
      worktree: true,
      steps: [
        { providerId: agents[1], prompt: `RUN until [ -e ${sign} ]; do sleep 0.1; done; echo first > winner.txt` },
        { providerId: 'builtin', prompt: `RUN touch ${sign}; sleep 60` },
      ],
    },
  });
  const { status, stopReason, steps = [] } = await turn.result;
  expect(status === 'completed' && stopReason === 'won', `${steps[0]?.providerId} has won`, steps);
  expect(steps[1]?.status === 'cancelled', 'the other one was stopped', steps);
  const places = new Set([folders[1], ...steps.map((step) => step.workingDirectory)]);
  expect(places.size === 3, 'each had a folder of its own', [...places]);
  await hands.look('race', url, ben, '/console/runs/race');
  const winner = join(folders[1], 'winner.txt');
  expect(!existsSync(winner), 'the checkout is as it was', winner);
  const { commit, branch } = await sessions.merge('race');
  expect(existsSync(winner), `the work of the winner is merged into ${branch}`, commit);
}

interface OwnersReport {
  readonly data: readonly { readonly group: string; readonly requests: number; readonly cost_usd: number }[];
  readonly total: { readonly requests: number; readonly cost_usd: number };
}

const centsOf = ({ cost_usd }: { readonly cost_usd: number }) => Math.round(cost_usd * 1e6) / 1e4;

/** Trestle writes usage about once a second, independently of the calls. */
async function metered({ url, admin, model, ann, ben, hands }: Stage, title: string): Promise<void> {
  chapter(title);
  const report = await until('all calls are metered', LIMIT_MS, async () => {
    const seen: OwnersReport = await call(`${url}/usage?group_by=owner`, { credential: admin });
    return centsOf(seen.total) === model.cents() ? seen : undefined;
  });
  for (const { name, id } of [ann, ben]) {
    const row = report.data.find(({ group }) => group === `user:${id}` || group === id);
    expect(row !== undefined && row.requests > 0, `${name} has used ${row && centsOf(row)} cents`, report.data);
  }
  const sum = report.data.reduce((cents, row) => cents + centsOf(row), 0);
  const isExact = sum === model.cents() && report.data.length === 2;
  expect(isExact, `together ${sum} cents, and the model API says the same`, [report, model.cents()]);
  await hands.look(title.includes('cent') ? 'usage' : 'metered', url, ADMIN, '/console/usage?by=owner');
}

async function reachBudget({ url, ann, ben, clientOf, model, hands }: Stage): Promise<void> {
  chapter(`Ann reaches the budget of ${BUDGET} USD, and Ben does not`);
  const report = async ({ token }: Person) => {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ model: MODEL, max_tokens: 1000, messages: [{ role: 'user', content: 'REPORT' }] }),
    });
    return { status: response.status, text: await response.text() };
  };
  let count = 0;
  let last = await report(ann);
  for (; last.status === 200 && count < MAX_REPORTS; count += 1) last = await report(ann);
  const isRefused = last.status === 429 && last.text.includes('insufficient_quota');
  expect(isRefused, `after ${count} long reports the next one is refused: insufficient_quota`, last);
  const before = model.cents();
  const turn = await clientOf(ann).session('no-money').start('RECALL').result;
  expect(turn.status === 'failed' && model.cents() === before, 'her agents stop as well', turn);
  const { status } = await report(ben);
  expect(status === 200, 'Ben works on', status);
  await hands.look('budget', url, ann, '/console/usage');
}

async function killOneOfThree({ ben, clientOf, instances, hands, url }: Stage): Promise<void> {
  chapter('kill -9 of one of three instances, in the middle of a turn');
  const atThree = clientOf(ben, 2).session('long');
  const turn = atThree.start('WAIT', { routing: { explicitProviderId: 'builtin' } });
  // Its connection is cut with the instance: what it got until then is all that counts.
  turn.result.catch(() => undefined);
  const app = watch(turn);
  await app.until('the turn has begun', ({ delta = '' }) => delta.includes(BEGINNING));
  const atOne = clientOf(ben).session('long');
  const stop = new AbortController();
  const onlooker = watch(atOne.follow({ afterSeq: 0, signal: stop.signal }));
  await onlooker.until('an onlooker at another instance sees it', ({ delta = '' }) => delta.includes(BEGINNING));
  await instances[2].end('SIGKILL');
  say('killed');
  const ended = ({ event }: { readonly event: string }) => event === 'failed';
  await onlooker.until('the onlooker sees its end', ended);
  const [interrupted] = (await clientOf(ben).sessions.turns('long')).turns;
  expect(interrupted?.code === 'TURN_INTERRUPTED', 'the turn ended as failed, TURN_INTERRUPTED', interrupted);

  const next = atOne.message('RECALL');
  const { output, status, turnId } = await next.result;
  expect(status === 'completed', `the session goes on at another instance: "${output}"`, output);
  expect(output.includes('2 prompts'), 'with everything that was said before', output);
  const stored = await storedUpdates(atOne, turnId);
  const last = stored.at(-1)?.seq ?? 0;
  await onlooker.until('the onlooker has seen the end of it', ({ seq }) => seq >= last);
  stop.abort();
  expect(
    isRising(onlooker.seen),
    `the onlooker got ${onlooker.seen.length} updates, each once and in order`,
    onlooker.seen,
  );
  const missed = missedBy(onlooker.seen, stored);
  expect(missed.length === 0, 'and missed none of those that are stored', missed);
  await hands.look('resumed', url, ben, '/console/sessions/long');
}
