import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Page } from 'playwright-core';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { openAsAda, TOKENS } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

async function openSession(scope: Scope, agents: object, prompt: string) {
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ agents, bridge: { sandbox: 'off' } }));
  const program = await startProgram(scope, { args: ['--config', config] });
  const opened = await openPage(scope, `${program.url}/console/new`);
  const { page } = opened;
  await page.getByLabel('What should be done?').fill(prompt);
  await page.getByLabel('Folder').fill(folder);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//);
  return { ...opened, log: page.getByRole('log') };
}

async function send(page: Page, text: string): Promise<void> {
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('log').locator('.prompt', { hasText: text }).waitFor();
}

test('a running turn is steered; mode and model are chosen for the next turns; a copy continues from a message', async (t) => {
  const agents = { default: 'builtin', builtin: { model: 'demo/echo?delay=1000' } };
  const { page, problems, log } = await openSession(t, agents, 'word '.repeat(300));
  await log.locator('.markdown').waitFor();
  await page.getByLabel('Message').fill('shorter, please');
  await page.getByRole('button', { name: 'Steer' }).click();
  await log.getByText('Message to the running turn: shorter, please').waitFor();
  await untilEqual(() => page.getByLabel('Message').inputValue(), '');
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await untilEqual(() => page.getByRole('button', { name: 'Steer' }).count(), 0, 'nothing runs that could be steered');

  const mode = page.getByLabel('Mode', { exact: true });
  const model = page.getByLabel('Model', { exact: true });
  const permissions = page.getByLabel('Before it runs commands or changes files');
  await untilEqual(() => permissions.inputValue(), 'ask');
  await mode.selectOption('plan');
  await until('the mode to decide', async () => (await permissions.inputValue()) === 'mode');
  await model.fill('demo/echo');
  await model.press('Enter');
  await page.locator('.session-bar .facts', { hasText: /· demo\/echo ·/ }).waitFor();
  await page.reload();
  await until('the choices to be shown again', async () => (await mode.inputValue()) === 'plan');
  assert.deepEqual([await model.inputValue(), await permissions.inputValue()], ['demo/echo', 'mode']);

  await send(page, 'second');
  await log.locator('.markdown', { hasText: /^second$/ }).waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await send(page, 'third');
  await log.locator('.markdown', { hasText: /^third$/ }).waitFor();
  const original = page.url();
  const forks = log.getByRole('button', { name: 'Fork from here' });
  await until('every turn to offer a copy', async () => (await forks.count()) === 3);
  await forks.nth(-2).click();
  await page.waitForURL((address) => address.href !== original);
  await page.getByText('Nothing yet.').waitFor();
  await send(page, 'another way');
  await log.locator('.markdown', { hasText: /^another way$/ }).waitFor();
  assert.deepEqual(problems, []);
});

test('an agent that offers modes and models; a denial with a reason is shown with it', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT, '--modes', '--models'] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  const { page, problems, log } = await openSession(t, agents, 'ask');
  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.getByRole('button', { name: 'Deny and say why' }).click();
  await card.getByLabel('Why not').fill('not on a Friday');
  await card.getByLabel('Why not').press('Enter');
  await log.getByText('Denied: touch made (not on a Friday)').waitFor();
  await log.getByText('answered selected never').waitFor();
  await card.waitFor({ state: 'detached' });

  const model = page.getByLabel('Model', { exact: true });
  const other = await model.locator('option').last().getAttribute('value');
  await model.selectOption(other ?? '');
  await page.locator('.session-bar .facts', { hasText: `· ${other} ·` }).waitFor();
  await send(page, 'model');
  await log.locator('.markdown', { hasText: String(other) }).waitFor();
  // This agent copies whole sessions only: forking is offered after the last turn, and may be refused.
  await until('two turns to end', async () => (await log.locator('.turn-end').count()) === 2);
  const forks = log.getByRole('button', { name: 'Fork from here' });
  await until('the last turn alone to offer a copy', async () => (await forks.count()) === 1);
  await untilEqual(() => log.locator('.turn-end').last().getByRole('button', { name: 'Fork from here' }).count(), 1);
  await forks.click();
  await page
    .getByRole('alert')
    .getByText(/not_forkable/)
    .waitFor();
  assert.equal(
    await page.evaluate('document.documentElement.scrollWidth <= document.documentElement.clientWidth'),
    true,
  );
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('409')),
    [],
  );
});

test('an answer is remembered for a folder, named where it decides, listed and forgotten', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  const { page, problems, log } = await openSession(t, agents, 'ask');
  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.getByRole('button', { name: 'This folder' }).click();
  await log.getByText('Allowed: touch made · by you').waitFor();
  const again = async () => {
    await page.getByRole('button', { name: 'Send' }).waitFor();
    await page.getByLabel('Message').fill('ask');
    await page.getByRole('button', { name: 'Send' }).click();
  };
  await again();
  await log.getByText('Allowed: touch made · by a remembered answer: touch made').waitFor();

  await page.getByLabel('More', { exact: true }).last().click();
  await page.getByRole('button', { name: 'Remembered answers …' }).click();
  const dialog = page.getByRole('dialog', { name: 'Remembered answers' });
  await dialog.getByText('touch made').waitFor();
  await dialog.getByRole('button', { name: 'Forget touch made' }).click();
  await dialog.getByText('No answer is remembered').waitFor();
  await page.keyboard.press('Escape');
  await again();
  await card.getByRole('button', { name: 'Allow once' }).waitFor();
  assert.deepEqual(problems, []);
});

test('a question is shown that came while the session was read for the first time', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  const { page, problems } = await openSession(t, agents, 'ask');
  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.waitFor();
  let reads = 0;
  await page.route(/\/api\/bridge\/sessions\/[^/?]+(?:\?|$)/, async (route) => {
    reads += 1;
    const response = await route.fetch();
    if (reads > 1) return route.fulfill({ response });
    // As it was a moment before, and on its way until the page has been told of the question.
    await page.waitForTimeout(3000);
    const view = (await response.json()) as object;
    return route.fulfill({ response, json: { ...view, permissions: [] } });
  });
  await page.reload();
  await card.waitFor();
  assert.deepEqual(problems, []);
});

test('an administrator who stops and closes a session of somebody else names the owner', async (t) => {
  const agents = { default: 'builtin', builtin: { model: 'demo/echo?delay=1000' } };
  const { page, url } = await openAsAda(t, '/console', { agents });
  const turn = fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKENS.BRIDGE_AUTH_TOKEN}` },
    body: JSON.stringify({
      ...{ jsonrpc: '2.0', id: 1, method: 'session.start' },
      params: { sessionId: 'same', taskPrompt: 'word '.repeat(300) },
    }),
  });
  const sent: unknown[] = [];
  page.on('request', (request) => {
    if (!request.url().endsWith('/acp/rpc') || request.method() !== 'POST') return;
    const { method, params } = request.postDataJSON() as { method: string; params: unknown };
    if (/^session\.(cancel|close)$/.test(method)) sent.push([method, params]);
  });
  await page.getByRole('link', { name: /^word/ }).click();
  await page.waitForURL(/\/console\/sessions\/same\?owner=main$/);
  // The key that leaves the title is not the first of the two that stop the turn.
  await page.getByRole('heading', { level: 1 }).getByRole('button').click();
  await page.getByLabel('Title').waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.equal(((await (await turn).json()) as { result: { status: string } }).result.status, 'cancelled');
  await page.getByLabel('More', { exact: true }).last().click();
  await page.getByRole('button', { name: 'Close …' }).click();
  await page.getByRole('button', { name: 'Remove it' }).click();
  await page.waitForURL(/\/console$/);
  const params = { sessionId: 'same', owner: 'main' };
  assert.deepEqual(sent, [
    ['session.cancel', params],
    ['session.close', params],
  ]);
});

test('code has colours in answers and diffs, in both schemes, and the text stays as it was', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  const code = "// six digits\nconst code = '123456';\n";
  const { page, problems, log } = await openSession(t, agents, `say \`\`\`ts\n${code}\`\`\``);
  const answer = log.locator('figure.code code');
  await answer.locator('.code-comment', { hasText: '// six digits' }).waitFor();
  await answer.locator('.code-keyword', { hasText: 'const' }).waitFor();
  assert.equal(await answer.textContent(), code.trimEnd());
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await send(page, "edit step.ts const digits = 'six'; // pasted");
  const lines = log.locator('.diff tr.added pre');
  await lines.locator('.code-string', { hasText: "'six'" }).waitFor();
  assert.equal(await lines.textContent(), "+ const digits = 'six'; // pasted");
  const colourOf = () =>
    lines.locator('.code-comment').evaluate((one) => one.ownerDocument.defaultView?.getComputedStyle(one).color);
  const light = await colourOf();
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notEqual(await colourOf(), light);
  assert.deepEqual(problems, []);
});

test('earlier items come above what is read, which stays where it is', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  // More items than a page of updates has.
  const { page, problems, log } = await openSession(t, agents, 'report 1 1 331');
  // What comes while it is followed does not make a page.
  await log.locator('.turn-end').waitFor();
  const gate = Promise.withResolvers<void>();
  await page.route(/beforeSeq/, async (route) => {
    await gate.promise;
    await route.continue();
  });
  await page.reload();
  await log.locator('.turn-end').waitFor();
  const asked = page.waitForRequest(/beforeSeq/);
  await log.evaluate((place) => {
    place.scrollTop = 0;
  });
  await asked;
  await log.locator('.call').first().waitFor();
  const readNow = () =>
    log.evaluate((place) => {
      const { x, y } = place.getBoundingClientRect();
      const item = place.ownerDocument.elementFromPoint(x + 100, y + 120)?.closest('.placed');
      return { text: item?.textContent, y: item?.getBoundingClientRect().y ?? 0, height: place.scrollHeight };
    });
  /** When the list has measured what it shows. */
  async function read() {
    for (let last = await readNow(); ; ) {
      await page.waitForTimeout(500);
      const now = await readNow();
      if (isDeepStrictEqual(now, last)) return now;
      last = now;
    }
  }
  const before = await read();
  gate.resolve();
  await until('earlier items', async () => (await readNow()).height > before.height);
  const after = await read();
  assert.equal(after.text, before.text);
  assert.ok(Math.abs(after.y - before.y) < 2, `${after.y}, before ${before.y}`);
  assert.deepEqual(problems, []);
});

test('a menu ends with a choice, a click elsewhere and Escape; a dialog gives the focus back', async (t) => {
  const { page, problems } = await openSession(t, { default: 'builtin' }, 'hello');
  await page.getByRole('button', { name: 'Send' }).waitFor();
  const more = page.getByLabel('More', { exact: true }).last();
  const entry = page.getByRole('button', { name: 'Remembered answers …' });
  await more.click();
  await page.getByRole('log').click();
  await entry.waitFor({ state: 'hidden' });
  await more.click();
  await page.keyboard.press('Escape');
  await entry.waitFor({ state: 'hidden' });
  await more.click();
  await entry.click();
  const dialog = page.getByRole('dialog', { name: 'Remembered answers' });
  await dialog.waitFor();
  await entry.waitFor({ state: 'hidden' });
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal(await more.evaluate((one) => one === one.ownerDocument.activeElement), true);
  await more.click();
  await page.getByRole('button', { name: 'Archive', exact: true }).click();
  await page.waitForURL(/\/console$/);
  await page.goBack();
  await more.click();
  await page.getByRole('button', { name: 'Restore from the archive' }).click();
  await page.locator('.session-bar .chip', { hasText: 'idle' }).waitFor();
  assert.deepEqual(problems, []);
});

test('what is typed after “Deny and say why” is the reason; a key that is held answers and stops once', async (t) => {
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const agents = { catalog: ['scripted'], default: 'scripted', custom };
  const { page, problems, log } = await openSession(t, agents, 'ask');
  const card = page.getByRole('region', { name: 'The agent asks' });
  const why = card.getByRole('button', { name: 'Deny and say why' });
  await why.click();
  await page.keyboard.type('not now');
  assert.equal(await card.getByLabel('Why not').inputValue(), 'not now');
  // Neither key stops the turn: the first one leaves the field, and a held key is pressed once.
  await page.keyboard.press('Escape');
  await card.getByLabel('Why not').waitFor({ state: 'detached' });
  await page.keyboard.down('Escape');
  await page.keyboard.down('Escape');
  await page.keyboard.up('Escape');
  await page.waitForTimeout(1200);
  assert.equal(await page.getByRole('button', { name: 'Stopping …' }).count(), 0);
  let answers = 0;
  page.on('request', (request) => {
    if (request.method() === 'POST' && /\/permissions\//.test(request.url())) answers += 1;
  });
  await page.keyboard.press('y');
  await page.keyboard.press('y');
  await log.getByText('answered selected once').waitFor();
  assert.equal(answers, 1);
  assert.deepEqual(problems, []);
});

test('over plain HTTP, where browsers offer less, sessions and runs start and the playground answers', async (t) => {
  const program = await startProgram(t, { args: [] });
  const { page, problems } = await openPage(t, 'about:blank');
  // As on a page that came over plain HTTP from another machine.
  await page.addInitScript(`delete Crypto.prototype.randomUUID; delete Navigator.prototype.clipboard;
    delete globalThis.PublicKeyCredential`);
  await page.goto(`${program.url}/console/new`);
  await page.getByLabel('What should be done?').fill('hello');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//);
  const log = page.getByRole('log');
  await log.locator('.turn-end').waitFor();
  await log.press('c');
  await page.getByText('This browser copies on https addresses and on localhost only.').waitFor();
  await page.goto(`${program.url}/console/playground`);
  await page.getByLabel('Message').fill('hello there');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.markdown', { hasText: 'hello there' }).waitFor();
  await page.goto(`${program.url}/login`);
  await page.getByRole('button', { name: 'Use a passkey' }).click();
  await page.getByText('This browser offers passkeys on https addresses and on localhost only.').waitFor();
  assert.deepEqual(problems, []);
});
