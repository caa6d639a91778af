import type { JobsEvent, StoredJobs } from './job-events.ts';
import type { CallbackEvent } from './played-receivers.ts';

const MAX_ATTEMPTS = 3;
const PAUSES_MS = [2000, 10_000];

/** Webhooks tell of ends, say the same each time, and are tried as often as documented. */
export function checkWebhooks(events: readonly JobsEvent[], { jobs, deliveries }: StoredJobs): string[] {
  const arrived = Map.groupBy(
    events.filter((event): event is CallbackEvent => event.kind === 'callback'),
    ({ jobId }) => jobId,
  );
  const isInTime = !events.some(({ kind }) => kind === 'wall-step');
  return [
    ...deliveries.map(
      ({ id, job_id: jobId, attempts }) => `the webhook ${id} of ${jobId} still waits, after ${attempts}`,
    ),
    ...jobs.flatMap((job) => {
      const { id, webhook_url: url, webhook_sent: sent, webhook_tries: tries } = job;
      const calls = arrived.get(id) ?? [];
      const problems: string[] = [];
      const say = (problem: string) => void problems.push(`the webhook of ${id} ${problem}`);
      if (url === '' && calls.length > 0) say('was sent, and nobody asked for it');
      if (url === '' || job.completed_at === null) return problems;
      if (calls.length > MAX_ATTEMPTS || tries > MAX_ATTEMPTS) say(`was sent ${calls.length} times, in ${tries} tries`);
      if (new Set(calls.map(({ digest }) => digest)).size > 1) say('said different things');
      const isTaken = calls.some(({ answer }) => answer === 200);
      const isRefused = calls.some(({ answer }) => answer === 404);
      if (sent === 1 && !isTaken) say('counts as sent, and nobody has taken it');
      const isInside = new URL(url).hostname.startsWith('inside');
      if (sent === 0 && !isRefused && !isInside && tries < MAX_ATTEMPTS) say(`was given up after ${tries} tries`);
      if (isInTime) problems.push(...checkPauses(id, calls));
      return problems;
    }),
  ];
}

/** After the first time at least two seconds, after the second at least ten. */
function checkPauses(id: string, calls: readonly CallbackEvent[]): string[] {
  return calls.slice(1).flatMap((call, index) => {
    const ms = call.at - (calls[index]?.at ?? 0);
    const least = PAUSES_MS[index] ?? 0;
    return ms < least ? [`the webhook of ${id} was sent again after ${ms} ms`] : [];
  });
}
