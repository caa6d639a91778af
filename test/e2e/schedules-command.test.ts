import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';
import { until } from '../kit/until.ts';

const server = await startProgram({ after });
const folder = await temporaryFolder({ after });
const data = ['--data-dir', server.dataDirectory];

const command = (...args: readonly string[]) => runProgram([...args, ...data], { workingDirectory: folder });

test('schedules are added, listed, shown and run, and a job is run again', async () => {
  const added = await command(
    'schedules',
    'add',
    'say scheduled',
    '--cron',
    '0 8 * * 1-5',
    '--timezone',
    'Europe/Berlin',
  );
  assert.equal(added.code, 0, added.stderr);
  assert.match(added.stdout, /^Added\.\nschedule +sch_/);
  const [id = ''] = /sch_[0-9a-z]{26}/.exec(added.stdout) ?? [];
  const line = new RegExp(`^${id}  in .*0 8 \\* \\* 1-5 Europe/Berlin .*say scheduled\n$`);
  assert.match((await command('schedules')).stdout, line);
  const run = JSON.parse((await command('schedules', 'run', id, '--json')).stdout);
  const job = await until('the job to end', async () => {
    const shown = JSON.parse((await command('jobs', 'show', run.jobId)).stdout);
    return shown.status === 'pending' || shown.status === 'running' ? undefined : shown;
  });
  assert.deepEqual([job.scheduleId, job.deliveries, job.taskPrompt], [id, [], 'say scheduled']);
  assert.match((await command('jobs', 'again', run.jobId)).stdout, /^Submitted job-/);
  const shown = JSON.parse((await command('schedules', 'show', id, '--json')).stdout);
  assert.deepEqual([shown.schedule.scheduleId, shown.jobs[0].jobId], [id, run.jobId]);
});

test('schedules are paused, resumed and removed; what is wrong is said', async (t) => {
  const added = await command('schedules', 'add', 'x', '--every', '6h', '--json');
  const { scheduleId: id } = JSON.parse(added.stdout);
  assert.equal((await command('schedules', 'pause', id)).stdout, `Paused ${id}.\n`);
  assert.match((await command('schedules', 'resume', id)).stdout, /^Resumed sch_.*; next: 20.* UTC\.\n$/);
  const terminal = startInTerminal(t, ['schedules', 'show', id, ...data], { workingDirectory: folder });
  await terminal.shows('catch up');
  assert.equal(await terminal.ended, 0);
  assert.equal((await command('schedules', 'remove', id)).stdout, `Removed ${id}.\n`);
  const gone = await command('schedules', 'show', id);
  assert.deepEqual([gone.code, /There is no schedule/.test(gone.stderr)], [1, true]);
  const wrong = await command('schedules', 'add', 'x');
  assert.deepEqual([wrong.code, /give --cron or --every/.test(wrong.stderr)], [2, true]);
  const zone = await command('schedules', 'add', 'x', '--every', '6h', '--timezone', 'Europe/Berlin');
  assert.deepEqual([zone.code, /--timezone is for --cron/.test(zone.stderr)], [2, true]);
});
