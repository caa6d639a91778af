import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

test('agents are listed with what to do, and tried; models are found by name', async (t) => {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const custom = [
    { id: 'scripted', command: process.execPath, args: [AGENT] },
    { id: 'away', label: 'Away <b>', command: 'a-program-that-is-not-there' },
  ];
  const agents = { catalog: ['builtin', 'scripted', 'away'], custom };
  const models = [{ name: 'fast', targets: [{ model: 'demo/echo' }], fallbacks: ['demo/echo?status=500'] }];
  await writeFile(config, JSON.stringify({ agents, bridge: { sandbox: 'off' }, completions: { models } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Agents' }).click();
  const builtin = page.getByRole('row', { name: /builtin.* ok .*demo\/echo.*messages in a turn, forks/ });
  const scripted = page.getByRole('row', { name: /scripted/ });
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const command = await page.evaluate<string>('navigator.clipboard.readText()');
  assert.equal(command, `curl -s '${program.url}/api/bridge/agents'`, 'nobody logs in here');
  await builtin.getByRole('button', { name: 'Test' }).click();
  await builtin.getByText(/first text after \d+ ms, \d+ ms in all/).waitFor();
  // The scripted agent takes its prompt for a script, and says so: the turn has reached it.
  await scripted.getByRole('button', { name: 'Test' }).click();
  await scripted.getByText('cannot Say').waitFor();
  const away = page.getByRole('row', { name: /Away <b>.*not installed/ });
  await away.waitFor();
  await untilEqual(() => away.getByRole('button').count(), 0, 'an agent that is not there cannot be tried');
  const left = (await (await fetch(`${program.url}/api/bridge/sessions`)).json()) as { sessions: unknown[] };
  assert.deepEqual(left.sessions, [], 'the sessions of the tests are gone');
  await scripted.getByRole('link', { name: 'New session' }).click();
  await page.getByLabel('What should be done?').waitFor();
  const chosen = page.getByLabel('Agent');
  await until('the agent to be chosen', async () => (await chosen.inputValue()) === 'scripted');
  await chosen.selectOption('Away <b> (not available)');
  await page.getByLabel('What should be done?').fill('hello');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('alert').getByText('The agent "away" is not available').waitFor();
  assert.match(page.url(), /\/console\/new/, 'no session was started that could be shown');
  assert.equal(await page.getByLabel('What should be done?').inputValue(), 'hello');

  await page.getByRole('link', { name: 'Models', exact: true }).click();
  const echo = page.getByRole('row', { name: /^demo\/echo / });
  await echo.waitFor();
  const aliases = page.getByRole('region', { name: 'Aliases' });
  await aliases.getByText('then demo/echo?status=500').waitFor();
  await page.getByRole('button', { name: 'Test fast' }).click();
  const fast = page.getByRole('row', { name: /^fast / });
  await fast.getByText(/first token after [\d,]+ ms/).waitFor();
  await aliases.getByText('ok').waitFor();
  await page.getByLabel('Search models').fill('no such model');
  await page.getByText('No model matches.').waitFor();
  await page.getByLabel('Search models').fill('groq');
  await page.getByRole('region', { name: 'Model APIs' }).getByText('GROQ_API_KEY').waitFor();
  await page.getByLabel('Search models').fill('ECHO');
  await echo.waitFor();
  await page.reload();
  await untilEqual(() => page.getByLabel('Search models').inputValue(), 'ECHO');
  await page.setViewportSize({ width: 390, height: 844 });
  await echo.waitFor();
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  await echo.getByRole('link', { name: 'Calls' }).click();
  await page.waitForURL(/\/console\/calls\?model=demo%2Fecho/);
  assert.deepEqual(problems, []);
});

test('an agent is installed and logged in to from its row, and a failure says what npm said', async (t) => {
  const folder = await temporaryFolder(t);
  const bin = join(folder, 'bin');
  await mkdir(bin);
  // An npm that puts the scripted agent where npm would put Gemini, and has no Qwen.
  const script = `#!/bin/sh
case "$*" in *qwen*) echo "no such version" >&2; exit 1;; esac
mkdir -p node_modules/.bin
printf '#!/bin/sh\\nexec "${process.execPath}" "${AGENT}"\\n' > node_modules/.bin/gemini
chmod 755 node_modules/.bin/gemini
`;
  await writeFile(join(bin, 'npm'), script, { mode: 0o755 });
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'locked', command: process.execPath, args: [AGENT, '--auth', 'several'] }];
  await writeFile(
    config,
    JSON.stringify({ agents: { catalog: ['gemini', 'qwen', 'locked'], default: 'locked', custom } }),
  );
  const environment = { PATH: `${bin}:/usr/bin:/bin` };
  const program = await startProgram(t, { args: ['--config', config], environment });
  const { page, problems } = await openPage(t, `${program.url}/console/agents`);
  const gemini = page.getByRole('row', { name: /gemini/ });
  await gemini.getByText('not installed').waitFor();
  await gemini.getByRole('button', { name: 'Install' }).click();
  await gemini.getByText(/Version [\d.]+ is installed/).waitFor();
  await gemini.getByText('ok', { exact: true }).waitFor();
  await untilEqual(() => gemini.getByRole('button', { name: 'Install' }).count(), 0);
  const qwen = page.getByRole('row', { name: /qwen/ });
  await qwen.getByRole('button', { name: 'Install' }).click();
  await qwen.getByRole('alert').getByText('no such version').waitFor();

  const locked = page.getByRole('row', { name: /locked/ });
  await locked.getByText('not logged in').waitFor();
  await locked.getByRole('button', { name: 'Log in' }).click();
  await locked.getByRole('button', { name: 'Key', exact: true }).click();
  await locked.getByText('Logged in.').waitFor();
  assert.deepEqual(
    problems.filter((problem) => !/50\d/.test(problem)),
    [],
  );
});

test('a schedule is made, shown with its times, paused, run and removed', async (t) => {
  const program = await startProgram(t);
  const { page, problems } = await openPage(t, `${program.url}/console/jobs`);
  await page.getByRole('navigation', { name: 'Jobs and schedules' }).getByRole('link', { name: 'Schedules' }).click();
  await page.getByRole('heading', { name: 'No schedules yet' }).waitFor();
  await page.getByRole('button', { name: 'New schedule' }).click();
  const dialog = page.getByRole('dialog', { name: 'New schedule' });
  await dialog.getByLabel('What should be done?').fill('look at <b>the issues</b>');
  await dialog.getByLabel('When').fill('every morning');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByLabel('When').fill('6h');
  await dialog.getByRole('button', { name: 'Create' }).click();
  const row = page.getByRole('row', { name: /look at <b>the issues<\/b> (?:When )?every 6 hours/ });
  await row.waitFor();
  await row.getByRole('button', { name: 'look at' }).click();
  const details = page.getByRole('dialog', { name: 'look at <b>the issues</b>' });
  await details.getByRole('listitem').nth(4).waitFor();
  await page.keyboard.press('Escape');
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByText('paused').waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByText('paused').waitFor({ state: 'detached' });
  await row.getByRole('button', { name: 'Run now' }).click();
  await page.getByRole('region', { name: 'Result' }).getByText('look at').waitFor();
  await page.goBack();
  await row.waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  await row.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('button', { name: 'Remove it' }).click();
  await page.getByRole('heading', { name: 'No schedules yet' }).waitFor();
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('400')),
    [],
  );
});
