import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Locator } from 'playwright-core';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openAsAda } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const PHONE = { width: 390, height: 844 };

/** Whether a control can be seen and hit with a finger. */
async function checkReach(control: Locator): Promise<void> {
  await control.waitFor();
  const box = await control.boundingBox();
  assert.ok(box !== null && box.height >= 44, `it is ${box?.height} pixels high`);
  assert.ok(box.x >= 0 && box.x + box.width <= PHONE.width, 'it is not beside the screen');
  assert.ok(box.y >= 0 && box.y + box.height <= PHONE.height, 'it is not below the screen');
}

/** A finger that moves a card to the left. */
async function swipe(card: Locator): Promise<void> {
  await card.scrollIntoViewIfNeeded();
  const box = await card.boundingBox();
  assert.ok(box !== null);
  const devTools = await card.page().context().newCDPSession(card.page());
  await devTools.send('Emulation.setTouchEmulationEnabled', { enabled: true });
  const touch = (type: 'touchStart' | 'touchMove', x: number) =>
    devTools.send('Input.dispatchTouchEvent', { type, touchPoints: [{ x, y: box.y + box.height / 2 }] });
  await touch('touchStart', 300);
  for (const x of [280, 240, 200, 160, 120]) await touch('touchMove', x);
  await devTools.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  await devTools.detach();
}

test('on a phone a session is started, its question answered, its work opened as a sheet, and found on the board', async (t) => {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.setViewportSize(PHONE);
  const bar = page.getByRole('navigation', { name: 'Console' });
  await checkReach(bar.getByRole('link', { name: 'New session' }));
  await bar.getByRole('link', { name: 'New session' }).click();
  await page.getByLabel('What should be done?').fill('form');
  await page.getByText('scripted would do it.').waitFor();
  await page.getByRole('button', { name: 'Start' }).click();

  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.getByLabel('Where').selectOption('live');
  await card.getByLabel('sure').selectOption('Yes');
  const answer = card.getByRole('button', { name: 'Answer' });
  await answer.scrollIntoViewIfNeeded();
  await checkReach(answer);
  await answer.click();
  await page.getByRole('log').getByText('"place":"live"').waitFor();
  await card.waitFor({ state: 'detached' });

  const composer = page.locator('form.composer');
  const message = composer.getByLabel('Message');
  const heightOf = async (part: Locator) => (await part.boundingBox())?.height ?? 0;
  await checkReach(composer.getByRole('button', { name: 'Send' }));
  assert.ok((await heightOf(message)) <= 48, 'the empty message is one row');
  const height = await heightOf(composer);
  assert.ok(height <= 2.5 * 48, `the composer is two rows before anything is typed, and it is ${height} pixels high`);
  await message.fill('one\ntwo');
  assert.ok((await heightOf(message)) > 48, 'what is typed has more room');
  await message.fill('');

  const side = page.getByRole('complementary');
  const plan = side.getByRole('tab', { name: 'Plan' });
  await untilEqual(() => side.getByRole('tabpanel').isVisible(), false, 'only the conversation is shown');
  await plan.click();
  await side.getByText('The agent has no plan.').waitFor();
  await plan.click();
  await side.getByRole('tabpanel').waitFor({ state: 'hidden' });

  await bar.getByRole('link', { name: 'Board' }).click();
  const ended = page.getByRole('region', { name: 'Done' }).getByRole('link', { name: 'form' });
  await ended.waitFor();
  await swipe(ended);
  await page.getByText('Archived “form”.').waitFor();
  await ended.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Undo' }).click();
  await ended.waitFor();

  await bar.getByRole('link', { name: 'New session' }).click();
  await page.getByLabel('What should be done?').fill('wait');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('log').getByText('waiting').waitFor();
  await bar.getByRole('link', { name: 'Board' }).click();
  const running = page.getByRole('region', { name: 'Running' }).getByRole('link', { name: 'wait' });
  await swipe(running);
  await page.getByText('Stopping “wait”.').waitFor();
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('Stopping “wait”.').waitFor({ state: 'detached' });
  await untilEqual(() => running.count(), 1, 'it still runs');
  await swipe(running);
  await page.getByRole('region', { name: 'Done' }).getByRole('link', { name: 'wait' }).waitFor();
  await page.getByRole('button', { name: 'List' }).click();
  await page.getByRole('row', { name: /form.*idle.*scripted/ }).waitFor();
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), PHONE.width, 'nothing is wider');
  assert.deepEqual(problems, []);
});

test('on a phone the other screens are behind “More”, which a choice and the key Escape close', async (t) => {
  const { page, problems } = await openAsAda(t, '/console');
  await page.setViewportSize(PHONE);
  const bar = page.getByRole('navigation', { name: 'Console' });
  await checkReach(bar.getByRole('button', { name: 'More' }));
  await untilEqual(() => bar.getByRole('link', { name: 'Users' }).isVisible(), false);
  await bar.getByRole('button', { name: 'More' }).click();
  await bar.getByRole('button', { name: 'Log out' }).waitFor();
  await page.keyboard.press('Escape');
  await bar.getByRole('button', { name: 'Log out' }).waitFor({ state: 'hidden' });
  await bar.getByRole('button', { name: 'More' }).click();
  const users = bar.getByRole('link', { name: 'Users' });
  await users.scrollIntoViewIfNeeded();
  await checkReach(users);
  await users.click();
  await page.getByRole('row', { name: /Ada/ }).waitFor();
  await bar.getByRole('link', { name: 'Users' }).waitFor({ state: 'hidden' });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), PHONE.width, 'nothing is wider');
  // A narrow window on a computer has a keyboard.
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).getByText('Ctrl K', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
});

test('on a phone every button and field can be hit with a finger, and the navigation says where one is', async (t) => {
  const program = await startProgram(t);
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.setViewportSize(PHONE);
  const screens = [
    '',
    '/new',
    '/runs/new',
    '/jobs',
    '/schedules',
    '/playground',
    '/models',
    '/usage',
    '/calls',
    '/system',
  ];
  for (const screen of screens) {
    await page.goto(`${program.url}/console${screen}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.getByText('Loading …').first().waitFor({ state: 'detached' });
    const low = await page.evaluate<string[]>(`
      [...document.querySelectorAll('main button:not(.link, .plain), main .button, main select, main input')]
        .filter((one) => one.checkVisibility() && !['checkbox', 'radio'].includes(one.type))
        .filter((one) => one.getBoundingClientRect().height < 44)
        .map((one) => one.getBoundingClientRect().height + ' ' + one.outerHTML.slice(0, 80))
    `);
    assert.deepEqual(low, [], screen);
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), PHONE.width, screen);
  }
  await page.goto(`${program.url}/console/schedules`);
  const jobs = page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Jobs' });
  await untilEqual(() => jobs.getAttribute('aria-current'), 'true');
  assert.deepEqual(problems, []);
});
