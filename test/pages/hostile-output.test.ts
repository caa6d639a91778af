import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

/** Texts that agents were made to say, or could be: each must stay a text. */
const TEXTS = [
  '<script>window.hacked = 1</script>',
  '<img src=x onerror="window.hacked = 2">',
  '<svg onload="window.hacked = 3"><animate onbegin="window.hacked = 3" /></svg>',
  '<iframe srcdoc="<script>top.hacked = 4</script>"></iframe>',
  '<form action="https://evil.example/"><input name=password autofocus><button>Log in</button></form>',
  '<style>* { display: none }</style>',
  '<a href="javascript:window.hacked=5">click</a>',
  '[click](javascript:window.hacked=6)',
  '[click](JaVaScRiPt:window.hacked=7)',
  '[click](data:text/html,<script>window.hacked=8</script>)',
  '[click](vbscript:msgbox)',
  '[click](//evil.example/path)',
  '[click](file:///etc/passwd)',
  '[click](\u0001javascript:window.hacked=9)',
  '![picture](https://evil.example/pixel.png)',
  '![picture][later]\n\n[later]: https://evil.example/other.png',
  '<javascript:window.hacked=10>',
  '[good.example](https://evil.example/)',
  '`rm\u202e -rf /\u202c` and \u200bzero\u2060width\ufeff',
  '\u001b[31mred\u001b[0m \u001b]8;;javascript:window.hacked=11\u0007link\u001b]8;;\u0007 \u001b[2J\u001b[H',
  '\u0000\u0007\u0008\u007f\u0085',
  `${'> '.repeat(3000)}deep`,
  `${'- '.repeat(300)}deep`,
  '_a'.repeat(4000),
  '| a | <img src=x onerror="window.hacked=12"> |\n| - | - |\n| <b>x</b> | `</code><script>window.hacked=13</script>` |',
  '```html"><script>window.hacked=14</script>\n<script>window.hacked=15</script>\n```',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template that an agent says
  '{{constructor.constructor("window.hacked=16")()}} ${window.hacked=17} __proto__',
];
const LONG = 5_000_000;
/** Without a mark these would be invisible, or turn the text around them. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
const HIDDEN = /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;

test('hostile texts of an agent stay texts in its conversation, titles, paths, diffs and outputs, and a long one stops nothing', async (t) => {
  const root = await temporaryFolder(t);
  const folder = join(root, 'work');
  await mkdir(folder);
  const config = join(root, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const call = async (method: string, taskPrompt: string) => {
    const params = { sessionId: 'hostile', taskPrompt, workingDirectory: folder };
    const response = await fetch(`${program.url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
    const { error } = (await response.json()) as { error?: object };
    assert.equal(error, undefined, JSON.stringify(error));
  };
  await call('session.start', `echo ${TEXTS.join('\n\n')}`);
  await call('session.message', `edit <img-src=x-onerror=alert(1)>\u202etxt.exe ${TEXTS.slice(0, 6).join(' ')}\u202e`);
  const { page, problems } = await openPage(t, 'about:blank');
  const outside: string[] = [];
  const dialogs: string[] = [];
  page.on('request', (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(program.url)) outside.push(request.url());
  });
  page.on('dialog', (dialog) => {
    dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  await page.goto(`${program.url}/console/sessions/hostile`);
  const log = page.getByRole('log');
  await page.locator('.turn-end').last().waitFor();
  // Every item is drawn once, from the end to the beginning.
  const seen = { elements: new Set<string>(), links: new Set<string>(), text: '' };
  for (const key of ['End', 'Home', 'End', 'Home']) {
    await log.press(key);
    const found = await log.evaluate((place) => ({
      elements: [...place.querySelectorAll('*')].map((one) => one.tagName.toLowerCase()),
      links: [...place.querySelectorAll('a')].map((one) => one.getAttribute('href') ?? ''),
      text: place.textContent ?? '',
    }));
    for (const name of found.elements) seen.elements.add(name);
    for (const href of found.links) seen.links.add(href);
    seen.text += found.text;
  }
  for (const name of ['script', 'img', 'svg', 'iframe', 'form', 'style', 'input', 'object', 'embed', 'link', 'base'])
    assert.equal(seen.elements.has(name), false, `an element ${name} was made`);
  for (const href of seen.links) assert.match(href, /^(?:https?:\/\/|mailto:)/);
  assert.ok(seen.links.has('https://evil.example/'), 'a link to a page is offered');
  assert.doesNotMatch(seen.text, HIDDEN);
  assert.match(seen.text, /⟨U\+202E⟩/);
  assert.match(seen.text, /<script>window\.hacked = 1<\/script>/, 'what was said is shown');
  assert.match(seen.text, /good\.example \(evil\.example\)/, 'the host of a link is named');
  await page.getByRole('complementary').getByText('⟨U+202E⟩txt.exe').first().waitFor();

  await call('session.message', `burst 1 ${LONG}`);
  await page.reload();
  await log.getByText(/\d characters before these/).waitFor();
  await page.getByLabel('Message').fill('still here');
  await untilEqual(() => page.getByLabel('Message').inputValue(), 'still here', 'the page can be used');
  assert.equal(await page.evaluate('window.hacked'), undefined);
  assert.deepEqual({ outside, dialogs, problems }, { outside: [], dialogs: [], problems: [] });
});
