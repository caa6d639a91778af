import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import { type CommandContext, EXIT_USAGE, fail, print } from './command-context.ts';
import { withTeamOption } from './load-settings.ts';
import { MCP_OPTION, readMcpFiles } from './run.ts';
import { commandAction, moment, oneOf, table, when, wholeNumber } from './sessions.ts';
import { oneLine } from './turn-display.ts';

type Schedule = Awaited<ReturnType<TrestleClient['schedules']['get']>>;
type NewSchedule = Parameters<TrestleClient['schedules']['create']>[0];

const SCHEDULE = 'the id of the schedule';
const MAX_NAME = 40;

/** `trestle schedules`. */
export function registerSchedules(program: Command, context: CommandContext): void {
  const action = commandAction(context);
  const schedules = withTeamOption(program.command('schedules'))
    .summary('run tasks on a schedule')
    .description('Lists the schedules of the running server, the newest first.')
    .option('--limit <count>', 'how many to list at most (default: 20)')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle schedules add "summarise the open issues" --cron "0 8 * * 1-5"\n  trestle schedules add "look for new releases" --every 6h --agent codex --folder .\n  trestle schedules pause sch_01m7jjcdxt91frsf4t5meyw9a0',
    );
  const list = action(() => async (trestle, command, { limit }) => {
    const page = await trestle.schedules.list({ limit: wholeNumber(limit ?? 20, '--limit', context) });
    print(command, context, page, scheduleTable(page.schedules, Date.now()));
  });
  schedules.action(list);
  schedules.command('list').description('Does the same as trestle schedules, with the same options.').action(list);
  schedules
    .command('add')
    .description('Creates a schedule, which runs a task as a job at the times you set.')
    .argument('<prompt>', 'the task to run')
    .option('--cron <pattern>', 'minute, hour, day of month, month, day of week')
    .option('--every <duration>', 'such as 30m, 6h or 1d, instead of --cron')
    .option('--timezone <name>', 'time zone of --cron (default: that of this machine)')
    .option('--name <name>', 'name of the schedule (default: the beginning of the prompt)')
    .option('--agent <id>', 'the agent to run')
    .option('--model <name>', 'the model that the agent uses')
    .option('--folder <path>', 'where the agent works (default: a private folder)')
    .option('--session <id>', 'continue this session each time; otherwise each job has its own')
    .option(...MCP_OPTION)
    .option('--overlap <what>', 'what to do while the last job is still open: skip (the default) or queue')
    .option('--catch-up <what>', 'how many missed times to catch up on: none (the default) or one')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle schedules add "summarise the open issues" --cron "0 8 * * 1-5" --timezone Europe/Berlin\n  trestle schedules add "look for new releases" --every 6h --agent codex --folder .',
    )
    .action(
      action(
        (prompt = '') =>
          async (trestle, command, options) => {
            const { task, ...given } = readSchedule(prompt, options, context);
            const mcpServers = await readMcpFiles(options.mcp as readonly string[] | undefined, context);
            const withServers = { ...task, ...(mcpServers.length > 0 && { mcpServers }) };
            const schedule = await trestle.schedules.create({ ...given, task: withServers });
            print(command, context, schedule, `Added.\n${scheduleText(schedule)}`);
          },
        'server',
      ),
    );
  schedules
    .command('show')
    .description('Shows a schedule with its next times and latest jobs.')
    .argument('<schedule>', SCHEDULE)
    .addHelpText('after', '\nExamples:\n  trestle schedules show sch_01m7jjcdxt91frsf4t5meyw9a0')
    .action(
      action((scheduleId = '') => async (trestle, command) => {
        const schedule = await trestle.schedules.get(scheduleId);
        const { jobs } = await trestle.jobs.list({ scheduleId, limit: 5 });
        const rows = jobs.map(({ status, createdAt, jobId, errorCode }) => [
          status,
          when(createdAt, Date.now()),
          jobId,
          errorCode ?? '',
        ]);
        const text = `${scheduleText(schedule)}${rows.length === 0 ? '' : `\n${table(rows)}`}`;
        print(command, context, { schedule, jobs }, text);
      }),
    );
  for (const [name, enabled] of [
    ['pause', false],
    ['resume', true],
  ] as const) {
    schedules
      .command(name)
      .description(enabled ? 'Resumes a paused schedule.' : 'Pauses a schedule until it is resumed.')
      .argument('<schedule>', SCHEDULE)
      .action(
        action((scheduleId = '') => async (trestle, command) => {
          const schedule = await trestle.schedules.update(scheduleId, { enabled });
          const { nextAt } = schedule;
          const text =
            nextAt === null ? `Paused ${scheduleId}.\n` : `Resumed ${scheduleId}; next: ${moment(nextAt)}.\n`;
          print(command, context, schedule, text);
        }),
      );
  }
  schedules
    .command('remove')
    .description('Removes a schedule. The jobs it created are kept.')
    .argument('<schedule>', SCHEDULE)
    .action(
      action((scheduleId = '') => async (trestle, command) => {
        await trestle.schedules.remove(scheduleId);
        print(command, context, { scheduleId, removed: true }, `Removed ${scheduleId}.\n`);
      }),
    );
  schedules
    .command('run')
    .description('Runs the task of a schedule now, as a job.')
    .argument('<schedule>', SCHEDULE)
    .action(
      action((scheduleId = '') => async (trestle, command) => {
        const job = await trestle.schedules.run(scheduleId);
        print(command, context, job, `Submitted ${job.jobId}.\n`);
      }),
    );
}

function readSchedule(
  prompt: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): NewSchedule {
  const text = (name: string) => (typeof options[name] === 'string' ? (options[name] as string) : undefined);
  const [cron, every, agent, model, folder, session] = ['cron', 'every', 'agent', 'model', 'folder', 'session'].map(
    text,
  );
  if ((cron === undefined) === (every === undefined)) {
    return fail(context, 'give --cron or --every, such as --cron "0 8 * * 1-5" or --every 6h', EXIT_USAGE);
  }
  if (every !== undefined && text('timezone') !== undefined) {
    return fail(context, '--timezone is for --cron; leave it out with --every', EXIT_USAGE);
  }
  if (every !== undefined && !/^\d{1,9}[mhd]$/.test(every)) {
    return fail(context, '--every takes a number with m, h or d, such as 30m, 6h or 1d', EXIT_USAGE);
  }
  const { overlap = 'skip', catchUp = 'none' } = options;
  return {
    name: text('name') ?? oneLine(prompt, MAX_NAME),
    ...(cron !== undefined && { cron }),
    ...(every !== undefined && { every }),
    timezone: text('timezone') ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
    overlap: oneOf(overlap, ['skip', 'queue'], '--overlap', context) as 'skip' | 'queue',
    catchUp: oneOf(catchUp, ['none', 'one'], '--catch-up', context) as 'none' | 'one',
    task: {
      taskPrompt: prompt,
      ...(agent !== undefined && { providerId: agent }),
      ...(session !== undefined && { sessionId: session }),
      ...(folder !== undefined && { workingDirectory: resolve(folder) }),
      ...(model !== undefined && { routing: { explicitModel: model } }),
    },
  };
}

function scheduleTable(schedules: readonly Schedule[], now: number): string {
  if (schedules.length === 0)
    return 'There are no schedules; add one with: trestle schedules add "..." --cron "0 8 * * *"\n';
  return table(
    schedules.map((schedule) => [
      schedule.scheduleId,
      schedule.enabled ? when(schedule.nextAt ?? now, now) : 'paused',
      timesOf(schedule),
      schedule.last?.result ?? '',
      oneLine(schedule.name, MAX_NAME),
    ]),
  );
}

function scheduleText(schedule: Schedule): string {
  const { scheduleId, name, enabled, upcoming, last, lastJobId, overlap, catchUp, task } = schedule;
  return table([
    ['schedule', scheduleId],
    ['name', oneLine(name, 200)],
    ['task', oneLine(task.taskPrompt ?? '', 200)],
    ...(task.mcpServers === undefined
      ? []
      : [['MCP', oneLine(task.mcpServers.map((one) => one.name).join(', '), 200)]]),
    ['times', timesOf(schedule)],
    ['next', enabled ? upcoming.map(moment).join(', ') : 'paused'],
    [
      'last',
      last === null ? 'never' : `${last.result} ${moment(last.at)}${last.message === '' ? '' : `: ${last.message}`}`,
    ],
    ['last job', lastJobId ?? 'none'],
    ['overlap', overlap],
    ['catch up', catchUp],
  ]);
}

function timesOf({ cron, every, timezone }: Schedule): string {
  return cron === null ? `every ${every}` : `${cron} ${timezone}`;
}

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
    .option('--agent <id>', 'only jobs of this agent')
    .option('--schedule <id>', 'only jobs of this schedule')
    .option('--limit <count>', 'how many to list at most (default: 20)')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle jobs --status failed\n  trestle jobs show job-01m7j5adcfb770yc2xwtdfhqkt\n  trestle jobs cancel job-01m7j5adcfb770yc2xwtdfhqkt',
    );
  const list = action(() => async (trestle, command, { status, search, agent, schedule, limit }) => {
    const page = await trestle.jobs.list({
      ...(typeof search === 'string' && { search }),
      ...(typeof agent === 'string' && { providerId: agent }),
      ...(typeof schedule === 'string' && { scheduleId: schedule }),
      limit: wholeNumber(limit ?? 20, '--limit', context),
      ...(status !== undefined && { status: oneOf(status, JOB_STATES, '--status', context) as Job['status'] }),
    });
    print(command, context, page, jobTable(page.jobs, Date.now()));
  });
  jobs.action(list);
  jobs.command('list').description('Does the same as trestle jobs, with the same options.').action(list);
  jobs
    .command('show')
    .description('Prints a job with its result and every attempt to deliver it, as JSON.')
    .argument('<job>', JOB)
    .addHelpText('after', '\nExamples:\n  trestle jobs show job-01m7j5adcfb770yc2xwtdfhqkt')
    .action(
      action((jobId = '') => async (trestle) => {
        context.stdout(`${JSON.stringify(await findJob(trestle, jobId, context), undefined, 2)}\n`);
      }),
    );
  jobs
    .command('again')
    .description('Runs an ended job again, as a new job.')
    .argument('<job>', JOB)
    .addHelpText('after', '\nExamples:\n  trestle jobs again job-01m7j5adcfb770yc2xwtdfhqkt')
    .action(
      action((jobId = '') => async (trestle, command) => {
        await findJob(trestle, jobId, context);
        const job = await trestle.jobs.submit({ retryOf: jobId });
        print(command, context, job, `Submitted ${job.jobId}.\n`);
      }),
    );
  jobs
    .command('cancel')
    .description('Cancels a waiting or running job.')
    .argument('<job>', JOB)
    .action(
      action((jobId = '') => async (trestle, command) => {
        const { status, sessionId } = await findJob(trestle, jobId, context);
        if (status !== 'pending' && status !== 'running') {
          return fail(context, `the job "${jobId}" has already ended: ${status}`);
        }
        await trestle.session(sessionId).cancel();
        print(command, context, { jobId, cancelled: true }, `Cancelled ${jobId}.\n`);
      }),
    );
}

async function findJob(trestle: TrestleClient, jobId: string, context: CommandContext): Promise<Job> {
  const job = await trestle.jobs.get(jobId);
  if (job.status !== 'not_found') return job;
  return fail(context, `there is no job "${jobId}"; trestle jobs lists them`);
}

function jobTable(jobs: readonly Job[], now: number): string {
  if (jobs.length === 0) return 'There are no jobs; submit one with: trestle run --background "..."\n';
  return table(
    jobs.map(({ status, createdAt, jobId, providerId, errorCode, taskPrompt }) => [
      status,
      when(createdAt, now),
      jobId,
      providerId,
      errorCode ?? '',
      oneLine(taskPrompt, MAX_PROMPT),
    ]),
  );
}
