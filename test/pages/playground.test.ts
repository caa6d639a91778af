import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { startGatedModel } from './gated-model.ts';
import { openAsAda } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

const MODULES = join(import.meta.dirname, '..', '..', 'node_modules');
const RUN_MS = 60_000;
const TOOLS = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', required: [] } } }];
/** A picture of one dot. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** Runs what the page shows as JavaScript, with the client of OpenAI that it imports. */
async function runModule(scope: TestContext, code: string): Promise<string> {
  const folder = await temporaryFolder(scope);
  await symlink(MODULES, join(folder, 'node_modules'));
  await writeFile(join(folder, 'shown.mjs'), code);
  const env = { ...process.env, OPENAI_API_KEY: 'none' };
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, 'shown.mjs')], { env, timeout: RUN_MS });
  return stdout.trim();
}

test('two models answer side by side as they stream; one is stopped, one is asked again, and one fails as it was told', async (t) => {
  const model = await startGatedModel(t, 'the first half ', 'and <b>the second</b>');
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const apis = { lab: { dialect: 'openai', base_url: model.baseUrl } };
  await writeFile(config, JSON.stringify({ completions: { apis } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.getByRole('link', { name: 'Playground' }).click();
  await page.getByRole('heading', { name: 'Playground' }).waitFor();
  const first = page.getByRole('region', { name: 'Model 1' });
  const second = page.getByRole('region', { name: 'Model 2' });
  await first.getByLabel('Model 1', { exact: true }).fill('demo/echo');
  await page.getByRole('button', { name: 'Add a model' }).click();
  await second.getByLabel('Model 2', { exact: true }).fill('lab/small');
  await page.getByText('Parameters').click();
  await page.getByLabel('System prompt').fill("it's a test");
  await page.getByLabel('Maximum length, in tokens').fill('3');
  await page.getByLabel('Message').fill('one two three four');
  await page.getByRole('button', { name: 'Code …' }).click();
  const dialog = page.getByRole('dialog', { name: 'Code' });
  const code = await dialog.locator('pre').first().innerText();
  assert.match(code, /^curl -N http:.*\/v1\/chat\/completions/);
  assert.match(code, /"content": "it'\\''s a test"/, 'a quote does not end the text of the shell');
  assert.match(code, /"max_tokens": 3/);
  await dialog.getByRole('button', { name: 'JavaScript' }).click();
  assert.equal(await runModule(t, await dialog.locator('pre').first().innerText()), 'one two three');
  await dialog.getByRole('button', { name: 'Python' }).click();
  const python = await dialog.locator('pre').first().innerText();
  assert.match(python, /base_url="http:.*\/v1"/);
  assert.match(
    python,
    /json\.loads\(r"""\n\{[\s\S]*"content": "it's a test"[\s\S]*\}\n"""\)\n.*create\(\*\*request, stream=True\)/,
  );
  await dialog.getByRole('button', { name: 'AI SDK' }).click();
  await dialog
    .getByText(/model: trestle\("demo\/echo"\),\s+system: "it's a test",[\s\S]*maxOutputTokens: 3,/)
    .waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });

  // One of the models has a system prompt and tools of its own; a picture goes to both.
  await page.getByLabel('Of which model').selectOption('2 lab/small');
  await page.getByLabel('System prompt').fill('be brief');
  await page.getByLabel('Tools, as JSON').fill('[{"type": "function"}]');
  await page.getByRole('alert').getByText('number 1 is not of the form').waitFor();
  await untilEqual(() => page.getByRole('button', { name: 'Send' }).isEnabled(), false);
  await page.getByLabel('Tools, as JSON').fill(JSON.stringify(TOOLS));
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await page.getByLabel('Of which model').selectOption('all models');
  await untilEqual(() => page.getByLabel('System prompt').inputValue(), "it's a test");
  await page.evaluate(`
    const clipboardData = new DataTransfer();
    const bytes = Uint8Array.from(atob('${DOT}'), (one) => one.charCodeAt(0));
    clipboardData.items.add(new File([bytes], 'dot.png', { type: 'image/png' }));
    const paste = new ClipboardEvent('paste', { clipboardData, bubbles: true });
    document.querySelector('.playground-form textarea').dispatchEvent(paste);
  `);
  await page.getByRole('button', { name: 'Remove dot.png' }).waitFor();
  await page.getByLabel('Message', { exact: true }).press('Enter');
  await first.getByText('one two three', { exact: true }).waitFor();
  await first.getByText(/ms in all · 7 \+ 3 tokens · .*ended by length · by demo\/echo/).waitFor();
  await second.getByText('the first half').waitFor();
  await first.getByRole('img', { name: 'Sent with the question' }).waitFor();
  const [asked] = model.asked;
  assert.deepEqual(asked?.tools, TOOLS);
  assert.equal(asked.messages[0]?.content, 'be brief');
  assert.deepEqual(asked.messages.at(-1)?.content, [
    { type: 'text', text: 'one two three four' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${DOT}` } },
  ]);
  await page.getByRole('button', { name: 'Remove dot.png' }).waitFor({ state: 'detached' });
  await untilEqual(() => second.getByText('the second').count(), 0, 'the rest has not come yet');
  await untilEqual(() => page.getByRole('button', { name: 'Send' }).isEnabled(), false);
  model.sendRest();
  await second.getByText('and <b>the second</b>').waitFor();
  await second.getByText(/by lab\/small/).waitFor();

  await page.getByRole('button', { name: 'Compare …' }).click();
  const compared = page.getByRole('dialog', { name: 'Compare' });
  await compared.getByRole('row', { name: 'one two three' }).waitFor();
  await compared.getByRole('row', { name: 'the first half and <b>the second</b>' }).waitFor();
  await compared.getByText('1 demo/echo → 2 lab/small').waitFor();
  await compared.getByLabel('To').selectOption('1 demo/echo');
  await compared.getByText('Both are the same.').waitFor();
  await compared.getByRole('button', { name: 'Close' }).click();
  await first.getByRole('button', { name: 'Use as baseline' }).click();
  await second.getByText(/^compared with demo\/echo: .* % time/).waitFor();
  await untilEqual(() => first.getByText(/^compared with/).count(), 0);

  // The next message goes with the conversation before it.
  await page.getByLabel('Maximum length, in tokens').fill('');
  await second.getByRole('button', { name: 'Remove model 2' }).click();
  await second.waitFor({ state: 'detached' });
  await first.getByLabel('Model 1', { exact: true }).fill('demo/echo?delay=3000');
  await page.getByLabel('Message').fill('go on a b c d e f g h');
  await page.getByRole('button', { name: 'Send' }).click();
  await first
    .getByText(/^go on/)
    .nth(1)
    .waitFor();
  await page.getByLabel('Message').press('Escape');
  await page.getByLabel('Message').press('Escape');
  await first.getByText(/^stopped · /).waitFor();
  await first.getByLabel('Model 1', { exact: true }).fill('demo/echo');
  await first.getByRole('button', { name: 'Ask again' }).click();
  await first.getByText(/ms in all · 20 \+ 10 tokens/).waitFor();

  await first.getByLabel('Model 1', { exact: true }).fill('demo/echo?status=429');
  await page.getByLabel('Message').fill('and now');
  await page.getByLabel('Message').press('Enter');
  await first.getByRole('alert').waitFor();
  await page.reload();
  await untilEqual(() => first.getByLabel('Model 1', { exact: true }).inputValue(), 'demo/echo?status=429');
  await page.getByRole('button', { name: 'History …' }).click();
  const history = page.getByRole('dialog', { name: 'History' });
  await untilEqual(() => history.getByRole('listitem').count(), 3, 'what was asked again is there once');
  await history.getByRole('button', { name: 'one two three four' }).click();
  await untilEqual(() => page.getByLabel('Message').inputValue(), 'one two three four');
  await untilEqual(() => second.getByLabel('Model 2', { exact: true }).inputValue(), 'lab/small');
  await page.getByText('Parameters').click();
  await untilEqual(() => page.getByLabel('Maximum length, in tokens').inputValue(), '3');
  await page.getByRole('button', { name: 'History …' }).click();
  await history.getByRole('button', { name: 'Clear' }).click();
  await history.waitFor({ state: 'detached' });
  await untilEqual(() => page.getByRole('button', { name: 'History …' }).isEnabled(), false);
  assert.equal(await page.evaluate(`localStorage.getItem('trestle.playground.')`), '[]');
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('429')),
    [],
  );
});

test('an answer that the server had kept is shown as one', async (t) => {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const models = [{ name: 'kept', targets: [{ model: 'demo/echo' }], cache: { ttl: '1h' } }];
  await writeFile(config, JSON.stringify({ completions: { models } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console/playground?model=kept`);
  const answers = page.getByRole('log');
  await page.getByLabel('Message').fill('hello there');
  await page.getByLabel('Message').press('Enter');
  await answers.getByText(/by demo\/echo/).waitFor();
  await untilEqual(() => answers.getByText(/from the cache/).count(), 0);
  await page.getByRole('button', { name: 'Ask again' }).click();
  await answers.getByText(/from the cache/).waitFor();
  assert.deepEqual(problems, []);
});

test('the calls of the playground are those of the person who is logged in, with their cost', async (t) => {
  const { page, problems } = await openAsAda(t, '/console/playground?model=demo/echo');
  await page.getByLabel('Message').fill('hello there');
  await page.getByLabel('Message').press('Enter');
  const answers = page.getByRole('log');
  await answers.getByText(/2 \+ 2 tokens · \$0\.00/).waitFor();
  await answers.getByRole('link', { name: 'Call' }).click();
  const row = page.getByRole('row', { name: /demo\/echo ok 200/ });
  await row.waitFor();
  await untilEqual(() => row.count(), 1);
  await row.getByRole('button').click();
  const owner = page.getByRole('dialog', { name: 'Call' }).getByText(/^user:usr_/);
  await until('the owner of the call', async () => (await owner.count()) === 1);
  assert.deepEqual(problems, []);
});
