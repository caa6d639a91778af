import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import { type CommandContext, CommandExit, EXIT_FAILED } from './command-context.ts';
import { withTeamOption } from './load-settings.ts';
import { age, commandAction, oneOf, table, wholeNumber } from './sessions.ts';
import { oneLine } from './turn-display.ts';

type Job = Awaited<ReturnType<TrestleClient['jobs']['list']>>['jobs'][number];

const JOB = 'the id of the job';
const JOB_STATES = ['pending', 'running', 'completed', 'failed'];
const MAX_PROMPT = 60;

/** `trestle jobs`. */
export function registerJobs(program: Command, context: CommandContext): void {
  const action = commandAction(context);
  const jobs = withTeamOption(program.command('jobs'))
    .summary('list, show, repeat and cancel background jobs')
    .description('Lists the background jobs of the running server, the newest first.')
    .option('--status <status>', JOB_STATES.join(', '))
    .option('--search <text>', 'in the prompt and in names')
    .option('--agent <id>', 'jobs of this agent')
    .option('--schedule <id>', 'jobs that this schedule made')
    .option('--limit <count>', 'at most so many; 20 unless given')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle jobs --status failed\n  trestle jobs show job-01m7j5adcfb770yc2xwtdfhqkt\n  trestle jobs cancel job-01m7j5adcfb770yc2xwtdfhqkt',
    );
  const list = action(() => async (trestle, _server, { status, search, agent, schedule, limit, json }) => {
    const page = await trestle.jobs.list({
      ...(typeof search === 'string' && { search }),
      ...(typeof agent === 'string' && { providerId: agent }),
      ...(typeof schedule === 'string' && { scheduleId: schedule }),
      limit: wholeNumber(limit ?? 20, '--limit', context),
      ...(status !== undefined && { status: oneOf(status, JOB_STATES, '--status', context) as Job['status'] }),
    });
    context.stdout(json === true ? `${JSON.stringify(page)}\n` : jobTable(page.jobs, Date.now()));
  });
  jobs.action(list);
  jobs.command('list').description('The same.').action(list);
  jobs
    .command('show')
    .description('Prints a job with its result and every attempt to deliver it, as JSON.')
    .argument('<job>', JOB)
    .action(
      action((jobId = '') => async (trestle) => {
        context.stdout(`${JSON.stringify(await findJob(trestle, jobId, context), undefined, 2)}\n`);
      }),
    );
  jobs
    .command('again')
    .description('Runs an ended job again, as a new job.')
    .argument('<job>', JOB)
    .action(
      action((jobId = '') => async (trestle, _server, { json }) => {
        const job = await trestle.jobs.submit({ retryOf: jobId });
        context.stdout(json === true ? `${JSON.stringify(job)}\n` : `Submitted ${job.jobId}.\n`);
      }),
    );
  jobs
    .command('cancel')
    .description('Cancels a job that waits or runs.')
    .argument('<job>', JOB)
    .action(
      action((jobId = '') => async (trestle) => {
        const { status, sessionId } = await findJob(trestle, jobId, context);
        if (status !== 'pending' && status !== 'running') {
          context.stderr(`trestle: the job "${jobId}" has ended: ${status}\n`);
          throw new CommandExit(EXIT_FAILED);
        }
        await trestle.session(sessionId).cancel();
        context.stdout(`Cancelled ${jobId}.\n`);
      }),
    );
}

async function findJob(trestle: TrestleClient, jobId: string, { stderr }: CommandContext): Promise<Job> {
  const job = await trestle.jobs.get(jobId);
  if (job.status !== 'not_found') return job;
  stderr(`trestle: there is no job "${jobId}"; trestle jobs lists them\n`);
  throw new CommandExit(EXIT_FAILED);
}

function jobTable(jobs: readonly Job[], now: number): string {
  if (jobs.length === 0) return 'There are no jobs; submit one with: trestle run --background "..."\n';
  return table(
    jobs.map(({ status, createdAt, jobId, providerId, errorCode, taskPrompt }) => [
      status,
      age(now - Date.parse(createdAt)),
      jobId,
      providerId,
      errorCode ?? '',
      oneLine(taskPrompt, MAX_PROMPT),
    ]),
  );
}
