import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Page } from 'playwright-core';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

/** The built-in agent repeats what it is told; the scripted one does it, and `wait` means until it is stopped. */
async function openRuns(scope: TestContext) {
  const config = join(await temporaryFolder(scope), 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin', 'scripted'], custom } }));
  const program = await startProgram(scope, { args: ['--config', config] });
  return openPage(scope, `${program.url}/console/runs`);
}

interface Step {
  readonly agent: string;
  readonly prompt?: string;
  readonly outputAs?: string;
}

async function start(page: Page, mode: string, steps: readonly Step[]): Promise<void> {
  await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Runs' }).click();
  await page.getByRole('link', { name: 'New run' }).click();
  await page.getByLabel('What should be done?').fill(`a ${mode}`);
  await page.getByRole('button', { name: mode }).click();
  for (const [place, { agent, prompt = '', outputAs = '' }] of steps.entries()) {
    const step = page.getByRole('group', { name: `Step ${place + 1}` });
    await step.getByLabel('Agent').selectOption(agent);
    await step.getByLabel('Prompt').fill(prompt);
    if (outputAs !== '') await step.getByLabel('Name of its output').fill(outputAs);
  }
  await page.getByRole('button', { name: 'Start the run' }).click();
  await page.getByRole('figure', { name: `Picture of the ${mode.toLowerCase()}` }).waitFor();
}

test('a sequence and a conversation are built, drawn, and opened step by step', async (t) => {
  const { page, problems } = await openRuns(t);
  await page.getByRole('heading', { name: 'No runs yet' }).waitFor();
  await start(page, 'Sequence', [
    { agent: 'builtin', prompt: 'facts of {{input}}', outputAs: 'facts' },
    { agent: 'builtin', prompt: 'short: {{facts}}' },
  ]);
  await page.getByRole('link', { name: 'Step 2, builtin: completed' }).waitFor();
  await page.getByRole('figure').getByText('{{facts}}').waitFor();
  const outputs = page.getByRole('list', { name: 'Steps' });
  await outputs.getByText('short: facts of a Sequence').waitFor();
  await page.getByRole('link', { name: 'Step 1, builtin: completed' }).click();
  const step = page.getByRole('region', { name: 'Step 1: builtin' });
  await step.getByRole('log').getByText('facts of a Sequence').waitFor();
  await untilEqual(() => step.getByText('short:').count(), 0, 'nothing of the other step');
  await page.reload();
  await step.getByRole('log').getByText('facts of a Sequence').waitFor();
  await step.getByRole('button', { name: 'All steps' }).click();
  await outputs.waitFor();
  await page.getByRole('button', { name: 'Compare …' }).click();
  const compared = page.getByRole('dialog', { name: 'Compare' });
  await compared.getByText('1: 1 builtin → 2: 2 builtin').waitFor();
  await compared.locator('tr.removed').getByText('facts of a Sequence').waitFor();
  await compared.locator('tr.added').getByText('short: facts of a Sequence').waitFor();
  await page.keyboard.press('Escape');
  await outputs.getByRole('button', { name: 'Use this one' }).nth(1).click();
  await page.getByLabel('Message').waitFor();
  await untilEqual(() => page.getByLabel('Message').inputValue(), 'short: facts of a Sequence');

  // The form begins with the steps of the run, and what is changed there is run.
  await page.goBack();
  await page.getByRole('link', { name: 'Run again …' }).click();
  await untilEqual(() => page.getByLabel('What should be done?').inputValue(), 'a Sequence');
  const first = page.getByRole('group', { name: 'Step 1' });
  await untilEqual(() => first.getByLabel('Prompt').inputValue(), 'facts of {{input}}');
  await untilEqual(() => first.getByLabel('Name of its output').inputValue(), 'facts');
  await page.getByRole('group', { name: 'Step 2' }).getByLabel('Prompt').fill('longer: {{facts}}');
  await page.getByRole('button', { name: 'Start the run' }).click();
  await outputs.getByText('longer: facts of a Sequence').waitFor();

  await start(page, 'Conversation', [{ agent: 'builtin' }, { agent: 'builtin' }]);
  await page.getByText('Ended: max turns').waitFor();
  await untilEqual(() => page.getByRole('link', { name: 'Step 1, builtin: completed' }).count(), 2, 'two rounds');
  await page.getByRole('link', { name: 'Open the session' }).click();
  await page.getByRole('log').getByText('a Conversation').first().waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goBack();
  await page.getByText('Ended: max turns').waitFor();
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(problems, []);
});

test('lanes show who has won a race, and a run can be stopped', async (t) => {
  const { page, problems } = await openRuns(t);
  const steps = [{ agent: 'builtin' }, { agent: 'scripted', prompt: 'wait' }];
  await start(page, 'Race', steps);
  await page.getByRole('link', { name: 'Step 1, builtin: won' }).waitFor();
  await page.getByRole('link', { name: 'Step 2, scripted: cancelled' }).waitFor();
  await page.getByText(/^race · won ·/).waitFor();

  await start(page, 'Parallel', steps);
  await page.getByRole('link', { name: 'Step 1, builtin: completed' }).waitFor();
  await page.getByRole('link', { name: 'Step 2, scripted: running' }).click();
  await page.getByRole('region', { name: 'Step 2: scripted' }).getByRole('log').getByText('waiting').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('link', { name: 'Step 2, scripted: cancelled' }).waitFor();
  await page.getByText(/^parallel · cancelled ·/).waitFor();
  await untilEqual(() => page.getByRole('button', { name: 'Stop' }).count(), 0);
  await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Runs' }).click();
  await page.getByRole('row', { name: /a Parallel.*cancelled/ }).waitFor();
  await page.getByRole('row', { name: /a Race.*completed/ }).waitFor();
  await page.getByLabel('Search runs').fill('race');
  await page.getByRole('row', { name: /a Parallel/ }).waitFor({ state: 'detached' });
  assert.deepEqual(problems, []);
});
