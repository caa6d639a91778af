import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { createScope } from '../kit/create-scope.ts';
import { freePort } from '../kit/free-port.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { FILE, OLD } from '../kit/scripted-work.ts';
import { until } from '../kit/until.ts';
import { logIn, PASSWORD, TOKENS } from './logged-in.ts';
import {
  JOB,
  launchWithFonts,
  ORIGIN,
  PICTURES,
  questionOf,
  RECORDING,
  type Recording,
  RUN,
  SCREENS,
  SESSION,
  settle,
  TEAM,
  withoutFacts,
} from './picture-screens.ts';

/**
 * Records what the real program answers to every screen, for the pictures of `pictures.test.ts`:
 * `npm run test:console -- record-pictures.ts`, then `npm run test:console -- pictures.test.ts --update`.
 */

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const scope = createScope();
try {
  await record();
} finally {
  await scope.end();
}

async function record(): Promise<void> {
  const executablePath = process.env.CHROMIUM;
  assert.ok(executablePath, 'CHROMIUM names no browser: run this by npm run test:console -- record-pictures.ts');
  const root = await temporaryFolder(scope);
  const config = join(root, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const settings = {
    agents: { catalog: ['builtin', 'scripted'], default: 'scripted', custom },
    // A picture must not depend on how busy the machine is.
    bridge: { checkpoints: { timeout: '1m' } },
    plans: { pro: { models: ['*'], budget: { usd: 50, period: 'month' } } },
  };
  await writeFile(config, JSON.stringify(settings));
  const port = await freePort();
  const program = await startProgram(scope, {
    environment: { ...TOKENS, HOME: root },
    args: ['--config', config, '--listen', `127.0.0.1:${port}`],
  });
  const url = `http://localhost:${port}`;
  const browser = await launchWithFonts(scope, executablePath);
  const people = await browser.newContext({ baseURL: url, timezoneId: 'UTC', extraHTTPHeaders: { origin: url } });
  const nobody = await browser.newContext({ baseURL: url, timezoneId: 'UTC', extraHTTPHeaders: { origin: url } });
  const answers: Recording['answers'][number][] = [];
  const places = new Map<string, number>();
  const screens: Record<string, Record<string, number>> = {};
  const names = new Map<string, string>([
    [root, '/home/ada'],
    [program.dataDirectory, '/home/ada/.trestle'],
    [url, ORIGIN],
    [program.url, ORIGIN],
    [`localhost:${port}`, new URL(ORIGIN).host],
    [`127.0.0.1:${port}`, new URL(ORIGIN).host],
    [process.execPath, '/usr/bin/node'],
    [join(import.meta.dirname, '..', '..'), '/opt/trestle'],
  ]);
  const renamed = (text: string) => [...names].reduce((before, [from, to]) => before.replaceAll(from, to), text);
  const shownAs = (path: string) => [...names].reduce((before, [from, to]) => before.replaceAll(to, from), path);

  /** Opens a screen and keeps what the program has answered to it. */
  async function keep(page: Page, screen: (typeof SCREENS)[number]): Promise<void> {
    const found: Record<string, number> = {};
    const isData = ({ pathname }: URL) => questionOf('GET', `${url}${pathname}`, null) !== undefined;
    await page.route(isData, async (route) => {
      const request = route.request();
      const question = questionOf(request.method(), request.url(), request.postData()) ?? '';
      const response = await route.fetch();
      const body = renamed(await response.text()).replace(/("access_token":")[^"]+/, '$1a-token');
      const one = `${response.status()} ${body}`;
      const place = places.get(one) ?? answers.push({ status: response.status(), body: JSON.parse(body) }) - 1;
      places.set(one, place);
      found[renamed(question)] = place;
      await route.fulfill({ response });
    });
    await page.route(
      (address) => !isData(address),
      async (route) => {
        if (route.request().resourceType() !== 'document') return route.fallback();
        const response = await route.fetch();
        return route.fulfill({ response, body: withoutFacts(await response.text()) });
      },
    );
    await page.goto(shownAs(screen.shown ?? screen.path));
    await settle(page, screen);
    await pause(700);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    screens[screen.name] = found;
  }

  const outside = await nobody.newPage();
  const setup = SCREENS.find(({ name }) => name === 'setup');
  assert.ok(setup);
  await keep(outside, setup);
  const token = String(program.summary.firstAdmin).split('#')[1];
  const account = { name: 'Ada', email: 'ada@example.com', password: PASSWORD };
  await people.request.post('/api/auth/setup', { data: { token, ...account } });
  const page = await people.newPage();
  await page.goto('/login');
  await logIn(page, account.email, PASSWORD);
  await page.waitForURL(/\/console$/);

  const post = async (path: string, data: object, headers: Record<string, string> = {}) => {
    const response = await people.request.post(path, { data, headers });
    assert.ok(response.ok(), `${path}: ${response.status()} ${await response.text()}`);
    return response.json();
  };
  const { user } = await (await people.request.get('/api/auth/session')).json();
  // People who log in have a folder of their own.
  names.delete(root);
  names.set(join(root, 'trestle', user.id), '/home/ada').set(root, '/srv');
  const folder = join(root, 'trestle', user.id, 'shop');
  await mkdir(dirname(join(folder, FILE)), { recursive: true });
  await writeFile(join(folder, FILE), OLD);
  const { access_token: bearer } = await post('/api/auth/token/jwt', {});
  const rpc = async (method: string, params: object) => {
    const headers = { authorization: `Bearer ${bearer}` };
    const { error, result } = await post('/acp/rpc', { jsonrpc: '2.0', id: 1, method, params }, headers);
    assert.equal(error, undefined, `${method}: ${JSON.stringify(error)}`);
    return result;
  };
  const start = (sessionId: string, taskPrompt: string, routing: object = {}) =>
    rpc('session.start', { sessionId, taskPrompt, workingDirectory: folder, routing });
  await start('s-2b3c4d5e', 'say The invoice has the **right** total now: `net + tax`, rounded once.');
  await start('s-3c4d5e6f', 'edit notes.md Refunds take two days').catch(() => undefined);
  await start('s-4d5e6f7a', 'die 3').catch(() => undefined);
  const steps = [
    { providerId: 'scripted', prompt: 'say The queue is **first in, first out**.', outputAs: 'facts' },
    { providerId: 'scripted', prompt: 'say Checked: {{facts}}' },
  ];
  await rpc('session.start', {
    ...{ sessionId: RUN, taskPrompt: 'How does the queue order orders?', workingDirectory: folder },
    ...{ multiAgent: true, routing: { orchestrationMode: 'sequence', steps } },
  });
  void start(SESSION, 'work on the login: a pasted code with a space in it is refused', { permissions: 'ask' }).catch(
    () => undefined,
  );
  const job = await rpc('app.jobs.submit', { taskPrompt: 'say The backup of tonight is **complete**.' });
  names.set(job.jobId, JOB);
  const task = { taskPrompt: 'say Good morning' };
  await post('/api/bridge/schedules', { name: 'nightly', cron: '0 3 * * *', timezone: 'UTC', task });
  const budget = { usd: 5, period: 'month' };
  const { key } = await post('/api/auth/keys', { name: 'laptop', models: ['demo/*'], budget });
  for (const content of ['one two three', 'and a longer question'])
    await post(
      '/v1/chat/completions',
      { model: 'demo/echo', messages: [{ role: 'user', content }] },
      { authorization: `Bearer ${key}` },
    );
  const { team } = await post('/api/auth/teams', { name: 'Checkout', budget: { usd: 20, period: 'month' } });
  names.set(team.id, TEAM);
  const { link } = await post('/api/auth/admin/invitations', {});
  const invited = { token: new URL(link).hash.replace('#token=', ''), name: 'Ben', email: 'ben@example.com' };
  await nobody.request.post('/api/auth/invitations/accept', { data: { ...invited, password: PASSWORD } });
  for (const [email, role] of [
    ['ada@example.com', 'owner'],
    ['ben@example.com', 'member'],
  ])
    await post(`/api/auth/teams/${team.id}/members`, { email, role });
  await post('/api/auth/subscriptions', { externalId: 'order-1', planId: 'pro', provider: 'bank' });
  await post('/api/auth/admin/agents', { id: 'edge-1', name: 'Edge', groups: ['eu'] });
  // The prompts say what the scripted agent does; people give names.
  for (const [sessionId, title] of [
    ['s-2b3c4d5e', 'Correct the total of invoices'],
    ['s-3c4d5e6f', 'Write down how long refunds take'],
    ['s-4d5e6f7a', 'Update the payment library'],
  ]) {
    const renaming = await people.request.patch(`/api/bridge/sessions/${sessionId}`, { data: { title } });
    assert.ok(renaming.ok(), `${sessionId}: ${renaming.status()} ${await renaming.text()}`);
  }
  await until('the question of the agent', async () =>
    JSON.stringify(await (await people.request.get('/api/bridge/permissions')).json()).includes(SESSION),
  );
  const now = Date.now() + 60_000;
  for (const screen of SCREENS) {
    if (screen === setup) continue;
    const shown = screen.isPublic ? outside : page;
    await shown.clock.setFixedTime(now);
    await keep(shown, screen);
    process.stdout.write(`${screen.name}: ${Object.keys(screens[screen.name] ?? {}).length} answers\n`);
  }
  await mkdir(PICTURES, { recursive: true });
  await writeFile(RECORDING, `${JSON.stringify({ now, screens, answers } satisfies Recording, undefined, 1)}\n`);
}
