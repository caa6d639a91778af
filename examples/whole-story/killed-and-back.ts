import type { JobRecord, TrestleClient } from '../../src/client/trestle-client.ts';
import { expect, say, until } from './narration.ts';
import { PATIENT_MODEL, QUICK_MODEL, type StoryAgent } from './story-agents.ts';
import { isEndOf, isRising, isText, missedBy, storedUpdates, textOf, watch } from './updates-seen.ts';
import type { WebhookReceiver } from './webhook-receiver.ts';

export interface KilledStory {
  readonly client: TrestleClient;
  readonly agent: StoryAgent;
  readonly receiver: WebhookReceiver;
  /** Kills Trestle with -9. */
  kill(): Promise<void>;
  /** Starts Trestle at the same address, with the same data. */
  startAgain(): Promise<void>;
}

const JOB_LIMIT_MS = 120_000;
const count = (last: number) => Array.from({ length: last }, (_, index) => index + 1).join(' ');
/** Too long to end before the kill. */
const LONG_WALK = `Count with me: ${count(1500)}`;
/** Long enough to run at the kill, short enough to wait for when it runs again. */
const SHORT_WALK = `Count again: ${count(60)}`;

/** The bridge dies in the middle of a turn and of two jobs, while a third one waits. */
export async function killedAndBack(story: KilledStory): Promise<void> {
  const { client, agent, receiver } = story;
  const routing = { explicitProviderId: agent.id, explicitModel: PATIENT_MODEL };

  const session = client.session('long-walk');
  const turn = session.start(LONG_WALK, { routing });
  const app = watch(turn);
  await app.until('the turn is in full swing', ({ delta = '' }) => delta.includes('10'));
  const stopFollowing = new AbortController();
  const onlooker = watch(session.follow({ signal: stopFollowing.signal }));

  const job = (taskPrompt: string, more: object) =>
    client.jobs.submit({ providerId: agent.id, taskPrompt, routing, callbackUrl: receiver.url, ...more });
  const untilItSpeaks = async (jobId: string) => {
    const stop = new AbortController();
    const updates = client.session(jobId).follow({ signal: stop.signal });
    await watch(updates).until(`the job ${jobId} says something`, isText);
    stop.abort();
  };
  const { jobId: once } = await job(LONG_WALK, {});
  await untilItSpeaks(once);
  const { jobId: again } = await job(SHORT_WALK, { retryOnRestart: true });
  await untilItSpeaks(again);
  const { jobId: waiting } = await job('I waited.', { routing: { explicitModel: QUICK_MODEL } });
  await onlooker.until('the onlooker sees the turn too', isText);

  const states = await Promise.all([once, again, waiting].map(async (id) => (await client.jobs.get(id)).status));
  expect(states.join() === 'running,running,pending', 'a turn and two jobs are under way, a third job waits', states);
  const before = app.seen.length;
  await story.kill();
  say(`kill -9, after ${before} updates: "...${textOf(app.seen).slice(-12)}"`);
  await story.startAgain();

  const result = await turn.result;
  const { turnId } = result;
  expect(
    result.status === 'failed' && result.code === 'TURN_INTERRUPTED',
    'the same call, still waiting in the app, now has its answer: failed, TURN_INTERRUPTED',
    result,
  );
  await app.until('the app sees the end of the turn', (update) => isEndOf(update, turnId));
  const next = session.message('Let us go on.', { routing: { explicitModel: QUICK_MODEL } });
  const after = watch(next);
  const nextResult = await next.result;
  expect(
    nextResult.status === 'completed' && nextResult.output.includes('Let us go on.'),
    `the conversation goes on: "${nextResult.output}"`,
    nextResult,
  );
  const isLast = (update: (typeof app.seen)[number]) => isEndOf(update, nextResult.turnId);
  await after.until('the app sees the end of the next turn', isLast);
  await onlooker.until('the onlooker sees the end of the next turn', isLast);
  stopFollowing.abort();

  const ofApp = [...app.seen, ...after.seen];
  const stored = await storedUpdates(session, nextResult.turnId);
  const starts = stored.filter(({ event }) => event === 'started').map((update) => update.turnId);
  expect(starts.join() === [turnId, nextResult.turnId].join(), 'each of the two turns was started once', starts);
  for (const [who, seen] of Object.entries({ app: ofApp, onlooker: onlooker.seen })) {
    expect(isRising(seen), `the ${who} got ${seen.length} updates, each once and in order`, numbersOf(seen));
    const missed = missedBy(seen, stored);
    expect(missed.length === 0, `the ${who} missed none of the ${stored.length} that are stored`, missed);
  }
  const said = textOf(app.seen);
  expect(LONG_WALK.startsWith(said), 'the text has no gap and no word twice', said);

  await jobsAreSettled(story, { once, again, waiting });
}

async function jobsAreSettled(
  { client, receiver }: KilledStory,
  { once, again, waiting }: Readonly<Record<'once' | 'again' | 'waiting', string>>,
): Promise<void> {
  const ended = (jobId: string) =>
    until(`the job ${jobId} has ended and its webhook was taken`, JOB_LIMIT_MS, async () => {
      const job = await client.jobs.get(jobId);
      return job.status !== 'not_found' && job.webhookSent ? job : undefined;
    });
  const lost = await ended(once);
  expect(
    lost.status === 'failed' && lost.errorCode === 'JOB_INTERRUPTED',
    'the job that ran is failed, JOB_INTERRUPTED: work is not repeated unasked',
    lost,
  );
  const repeated = await ended(again);
  expect(
    repeated.status === 'completed' && outputOf(repeated) === SHORT_WALK,
    'the job with retryOnRestart was run again, and completed',
    repeated,
  );
  const late = await ended(waiting);
  expect(late.status === 'completed', 'the job that waited was run, and completed', late);
  for (const job of [lost, repeated, late]) {
    const told = receiver.deliveries.filter((delivery) => delivery.job.jobId === job.jobId);
    const isTold = told.every(({ isGenuine, job: { status } }) => isGenuine && status === job.status);
    const events = new Set(told.map(({ deliveryId }) => deliveryId));
    expect(isTold && events.size === 1, `one signed webhook told of a job that ${job.status}`, told);
  }
}

function outputOf({ result }: JobRecord): string {
  return result?.output ?? '';
}

function numbersOf(updates: readonly { readonly seq: number }[]): readonly number[] {
  return updates.map(({ seq }) => seq);
}
