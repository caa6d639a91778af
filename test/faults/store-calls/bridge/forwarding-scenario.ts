import { asMain, asReview, startNode } from '../../../kit/bridge/start-nodes.ts';
import type { Scope } from '../../../kit/running-program.ts';
import { startScriptedHttp } from '../../../kit/scripted-http.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge } from './ask-bridge.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const REFUSED_ONCE = 'refused once';
const REFUSED = 'refused always';
const JOB = 'job-of-a-node';
const IN_TURN =
  '{ rules: [{ methods: [session.start, app.jobs.submit], target: { selector: { role: x }, strategy: round_robin } }] }';

/** What other nodes were asked for, each by what it was about. */
interface Heard {
  readonly node: string;
  readonly about: string;
}

/** Calls that go to other bridges, and where this one remembers what they have. */
export const forwardingScenario: Scenario = {
  name: 'forwarding',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const heard: Heard[] = [];
    const unheard = new Set([REFUSED_ONCE]);
    const open = (node: string) => startPeer(stage.scope, node, unheard, (about) => void heard.push({ node, about }));
    const peers = { b: await open('b'), c: await open('c') };
    const { url, database } = await startNode(stage.scope, { id: 'a', peers, forwarding: IN_TURN, clock });
    const ask = createAskBridge(url, clock);
    stage.watch(database);

    const { query } = database;
    const routes = () => query.selectFrom('session_routes').selectAll().execute();
    const isKnown = (name: string) => async () => storedOf((await routes()).some((route) => route.name === name));
    const start = (sessionId: string, headers = asMain) =>
      stage.step({
        name: `session.start: ${sessionId}`,
        ask: () => ask('session.start', { sessionId, threadId: 'all', taskPrompt: 'hello' }, headers),
        stored: isKnown(sessionId),
        // It is bound to a node by then, which may be the one that refuses it once.
        whenDone: ['task_forward_failed'],
      });
    const message = (name: string, sessionId: string) =>
      stage.step({ name, ask: () => ask('session.message', { sessionId, taskPrompt: 'hello' }, asMain) });

    await start('first');
    await start('second');
    await message('a message to the first', 'first');
    await message('a message to the second', 'second');
    await start('of review', asReview);
    await message('a message to what is somebody else’s', 'of review');
    await start(REFUSED_ONCE);
    await message('a message to what was refused once', REFUSED_ONCE);
    await stage.step({
      name: 'a start that a node refuses',
      ask: () => ask('session.start', { sessionId: REFUSED, taskPrompt: 'hello' }, asMain),
      refusal: 'invalid_params',
    });
    const submitted = await stage.step({
      name: 'a job',
      ask: () => ask('app.jobs.submit', { taskPrompt: 'hello', idempotencyKey: 'once' }, asMain),
      stored: isKnown(JOB),
    });
    await stage.step({ name: 'a look at it', ask: () => ask('app.jobs.get', { jobId: submitted?.jobId }, asMain) });
    await stage.step({ name: 'the jobs of all nodes', ask: () => ask('app.jobs.list', {}, asMain) });
    await stage.step({ name: 'a cancel of the thread', ask: () => ask('session.cancel', { threadId: 'all' }, asMain) });

    const usedAt = async () => (await routes()).find(({ name }) => name === 'first')?.used_at ?? 0;
    const before = await usedAt();
    clock.stepWall(6 * MINUTE_MS);
    await message('a message that is noted', 'first');
    await message('a message after it', 'first');
    await passUntil(clock, 1000, 'the use to be noted', async () => (await usedAt()) > before);
    clock.stepWall(2 * DAY_MS);
    await passUntil(clock, 11 * MINUTE_MS, 'old routes to be removed', async () => (await routes()).length === 0);
    stage.mend();
    for (const about of ['first', 'second', 'of review', REFUSED_ONCE, JOB]) {
      const nodes = new Set(heard.filter((one) => one.about === about).map(({ node }) => node));
      stage.note({ kind: 'fact', name: `nodes that have ${about}`, wanted: 1, found: nodes.size });
    }
  },
};

/** A node that does everything at once, except for what nobody has been asked for before and is not to be heard then. */
async function startPeer(scope: Scope, node: string, unheard: Set<string>, hear: (about: string) => void) {
  const { url } = await startScriptedHttp(scope, ({ body, response }) => {
    const { id, method, params } = JSON.parse(body);
    const about: string = params.sessionId ?? params.jobId ?? (method === 'app.jobs.submit' ? JOB : node);
    if (unheard.delete(about)) {
      response.writeHead(503).end();
      return;
    }
    hear(about);
    const results: Readonly<Record<string, object>> = {
      'app.jobs.submit': { jobId: JOB, sessionId: JOB },
      'app.jobs.list': { jobs: [], seenUntil: '' },
    };
    const error = { code: -32602, message: 'no', data: { code: 'INVALID_PARAMS' } };
    const answer = about === REFUSED ? { error } : { result: results[method] ?? {} };
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
  });
  return { url, more: 'role: x' };
}
