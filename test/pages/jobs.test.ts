import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

test('jobs: submitted, followed, stopped, run again; with their deliveries, and found again', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const receiver = createServer((_request, response) => response.writeHead(204).end()).listen(0, '127.0.0.1');
  t.after(() => receiver.close());
  await once(receiver, 'listening');
  const { page, problems } = await openPage(t, `${program.url}/console/jobs`);
  await page.getByRole('heading', { name: 'No jobs yet' }).waitFor();

  await page.getByRole('button', { name: 'New job' }).click();
  const dialog = page.getByRole('dialog', { name: 'New job' });
  await dialog.getByLabel('What should be done?').fill('wait <b>\u202ehere');
  await dialog.getByLabel('Priority').selectOption('high');
  await dialog.getByRole('button', { name: 'Submit' }).click();
  await page.getByRole('heading', { name: 'wait <b>⟨U+202E⟩here' }).waitFor();
  await page.getByText('running', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('JOB_CANCELLED').first().waitFor();
  await page.getByText('The job was stopped.').waitFor();

  // Ended, it can be run again, as a job of its own, by a form that is filled in with what it was.
  const first = page.url();
  await page.getByRole('button', { name: 'Run again …' }).click();
  const again = page.getByRole('dialog', { name: 'Run the job again' });
  assert.equal(await again.getByLabel('What should be done?').inputValue(), 'wait <b>\u202ehere');
  assert.equal(await again.getByLabel('Priority').inputValue(), 'high');
  await again.getByText('has the model, the files and the webhook of this one').waitFor();
  await again.getByLabel('Priority').selectOption('low');
  await again.getByRole('button', { name: 'Run again' }).click();
  await page.waitForURL((address) => address.href !== first);
  const facts = page.getByRole('region', { name: 'Facts' });
  assert.equal(
    new URL(first).pathname,
    await facts.getByText('Runs again').locator('..').getByRole('link').getAttribute('href'),
  );
  await facts.getByText('low', { exact: true }).waitFor();
  await page.getByText('running', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('JOB_CANCELLED').first().waitFor();

  // With another task it is a different job.
  await page.getByRole('button', { name: 'Run again …' }).click();
  await again.getByLabel('What should be done?').fill('say something else');
  await again.getByText('a different one').waitFor();
  await again.getByRole('button', { name: 'Run again' }).click();
  await page.getByRole('heading', { name: 'say something else' }).waitFor();
  await page.getByText('completed', { exact: true }).waitFor();
  await untilEqual(() => facts.getByText('Runs again').count(), 0, 'it does not repeat the job before');

  // A program submits one whose result is sent somewhere.
  const { port } = receiver.address() as AddressInfo;
  const params = { taskPrompt: 'say **done**', callbackUrl: `http://127.0.0.1:${port}/hook` };
  const answer = await fetch(`${program.url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'app.jobs.submit', params }),
  });
  assert.equal(answer.status, 200);
  await page.keyboard.press('g');
  await page.keyboard.press('j');
  const row = page.getByRole('row', { name: /say done.*completed.*scripted/ });
  await row.waitFor();
  await row.getByText('sent').waitFor();
  await page.getByText(/No job waits; jobs run for .+ on average/).waitFor();
  await page.getByRole('button', { name: 'failed' }).click();
  await row.waitFor({ state: 'detached' });
  await untilEqual(() => page.getByRole('row', { name: /failed JOB_CANCELLED/ }).count(), 2);
  await page.getByRole('button', { name: 'all' }).click();
  await page.getByLabel('Search jobs').fill('done');
  await page.getByRole('row', { name: /wait/ }).first().waitFor({ state: 'detached' });
  await page.reload();
  await row.getByRole('link').click();
  await page.getByRole('region', { name: 'Result' }).locator('strong', { hasText: 'done' }).waitFor();
  await page.getByRole('region', { name: 'Deliveries' }).getByText('webhook 1').waitFor();
  await page.getByRole('region', { name: 'Deliveries' }).getByText('sent').waitFor();
  await facts.getByText('Session').locator('..').getByRole('link').click();
  await page.getByRole('log').locator('strong', { hasText: 'done' }).waitFor();

  await page.goto(`${program.url}/console/jobs/job-nothing`);
  await page.getByRole('heading', { name: 'There is no job “job-nothing”' }).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('link', { name: 'To the jobs' }).click();
  await row.waitFor();
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(problems, []);
});

test('schedules say in words when they run, in the folder that was chosen; a job has one too', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console/schedules`, { timezoneId: 'Europe/Berlin' });
  await page.getByRole('button', { name: 'New schedule' }).click();
  const dialog = page.getByRole('dialog', { name: 'New schedule' });
  await dialog.getByText('Runs Monday to Friday at 08:00 (Europe/Berlin).').waitFor();
  await dialog.getByLabel('When').fill('6h');
  await dialog.getByText('Runs every 6 hours.').waitFor();
  await dialog.getByLabel('When').fill('30 7 * * 1');
  await dialog.getByLabel('What should be done?').fill('say hello');
  await dialog.getByLabel('Folder').fill(folder);
  await dialog.getByRole('button', { name: 'Create' }).click();
  const row = page.getByRole('row', { name: /say hello/ });
  await row.getByText('every Monday at 07:30').waitFor();
  await row.getByText('30 7 * * 1').waitFor();
  await row.getByRole('button', { name: 'say hello' }).click();
  await page.getByRole('dialog').getByText(`in ${folder}`).waitFor();
  await page.keyboard.press('Escape');
  await row.getByRole('button', { name: 'Run now' }).click();
  await page.getByText('completed', { exact: true }).waitFor();

  await page.goto(`${program.url}/console/jobs`);
  await page.getByRole('button', { name: 'New job' }).click();
  const job = page.getByRole('dialog', { name: 'New job' });
  await job.getByLabel('What should be done?').fill('edit made.txt here');
  await job.getByLabel('Folder').fill(folder);
  await job.getByRole('button', { name: 'Submit' }).click();
  await page.getByRole('heading', { name: 'edit made.txt here' }).waitFor();
  await page.getByText('completed', { exact: true }).waitFor();
  assert.equal(await readFile(join(folder, 'made.txt'), 'utf8'), 'here\n');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  const copied = await page.evaluate<string>('navigator.clipboard.readText()');
  const shown = JSON.parse((await promisify(execFile)('sh', ['-c', copied])).stdout) as { result: { status: string } };
  assert.equal(shown.result.status, 'completed');
  assert.deepEqual(problems, []);
});
