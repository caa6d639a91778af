import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { until } from '../kit/until.ts';
import { openAsAda, readByCurl } from './logged-in.ts';
import { untilEqual } from './open-page.ts';

test('a key is made, used and removed, and the calls with it are counted and shown', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/keys');
  await page.getByText('You have no keys yet.').waitFor();
  await page.getByLabel('Name').fill('laptop');
  await page.getByLabel('Models').fill('demo/*, openai/*');
  await page.getByLabel('Budget in US dollars').fill('2.5');
  await page.getByLabel('Period of the budget').selectOption('day');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const key = await page.locator('pre').first().innerText();
  await page.getByText(`export OPENAI_BASE_URL=${url}/v1`).waitFor();
  await page.getByRole('button', { name: 'I have stored it' }).click();
  await page
    .getByRole('row', { name: /laptop.*demo\/\*, openai\/\* none \$0\.00 of \$2\.50 a day spent.* not yet .*never/ })
    .waitFor();
  await page.getByRole('button', { name: 'Change' }).click();
  const changes = page.getByRole('dialog', { name: 'Change “laptop”' });
  assert.match(await readByCurl(page, changes), /"name":"laptop"/);
  await changes.getByText('Limits').click();
  await changes.getByLabel('Requests a minute').fill('700');
  await changes.getByLabel('Budget in US dollars').fill('');
  await changes.getByRole('button', { name: 'Save' }).click();
  await changes.waitFor({ state: 'detached' });
  await page.getByRole('row', { name: /laptop.*demo\/\*, openai\/\* 700 requests a minute / }).waitFor();

  const call = (model: string, credential = key) =>
    fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${credential}` },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: 'one two three' }] }),
    });
  const answered = await call('demo/echo');
  assert.equal(answered.status, 200);
  await answered.text();
  const again = await call('demo/echo');
  await again.text();
  await until('both calls to be recorded', async () => {
    const listed = await fetch(`${url}/v1/usage/calls`, { headers: { authorization: `Bearer ${key}` } });
    return ((await listed.json()) as { data: unknown[] }).data.length === 2;
  });

  await page.keyboard.press('g');
  await page.keyboard.press('u');
  const row = page.getByRole('row', { name: /^demo\/echo 2 0 / });
  await row.waitFor();
  await untilEqual(() => page.locator('.figures dd').first().innerText(), '2', 'the total is the sum of its parts');
  await page
    .getByText('The calls cost nothing: these models are free or have no price. The chart shows tokens')
    .waitFor();
  const tokens = page.getByRole('group', { name: /^Tokens for each day by model, / });
  await tokens.waitFor();
  await untilEqual(() => tokens.locator('.series-1').count(), 1, 'the chart is not empty where nothing was paid');
  await untilEqual(
    () => page.getByRole('button', { name: 'tokens', exact: true }).getAttribute('aria-pressed'),
    'true',
  );
  await page.getByRole('button', { name: 'requests', exact: true }).click();
  const chart = page.getByRole('group', { name: /^Requests for each day by model, / });
  await chart.waitFor();
  await untilEqual(() => chart.locator('.series-1').count(), 1, 'there were calls on one day');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'CSV' }).click(),
  ]);
  const [head, line] = (await readFile(await download.path(), 'utf8')).split('\r\n');
  assert.equal(head, 'model,requests,errors,prompt_tokens,completion_tokens,cost_usd');
  assert.match(line ?? '', /^"demo\/echo",2,0,\d+,\d+,/);
  await page.getByRole('button', { name: 'key', exact: true }).click();
  await page.waitForURL(/by=key/);
  await page.getByRole('button', { name: 'person', exact: true }).click();
  await page.getByRole('row', { name: /^Ada 2 0 / }).waitFor();
  await page.getByRole('button', { name: 'model', exact: true }).click();
  await row.getByRole('link').waitFor();
  // The bar of the day leads to the calls that it counts: with the keyboard, too.
  const bar = chart.getByRole('link', { name: /^\d{4}-\d\d-\d\d, demo\/echo: 2\. Show the calls$/ });
  await bar.focus();
  await page.keyboard.press('Enter');

  await page.getByRole('heading', { name: 'Calls' }).waitFor();
  const [, day = ''] = /[?&]from=(\d{4}-\d\d-\d\d)&/.exec(page.url()) ?? [];
  assert.equal(new URL(page.url()).search, `?model=demo%2Fecho&from=${day}&to=${day}`);
  const calls = page.getByRole('row', { name: /Ada laptop demo\/echo ok 200 1 / });
  await calls.first().waitFor();
  await untilEqual(() => calls.count(), 2);
  await page.goBack();
  await page.getByRole('button', { name: 'today' }).click();
  const hour = page
    .getByRole('group', { name: /^Requests for each hour by model, / })
    .getByRole('link', { name: /, demo\/echo: [12]\. Show the calls$/ });
  await hour.first().click();
  await page.getByRole('heading', { name: 'Calls' }).waitFor();
  await calls.first().waitFor();
  assert.match(await page.getByLabel('From').inputValue(), /T\d\d:00$/);
  const moment = calls.first().locator('time');
  const zone = await page.evaluate<string>('Intl.DateTimeFormat().resolvedOptions().timeZone');
  assert.equal(await moment.getAttribute('title'), `${await moment.innerText()} ${zone}`, 'the zone is shown on hover');
  await calls.first().getByRole('button').click();
  const dialog = page.getByRole('dialog', { name: 'Call' });
  await dialog.getByText(again.headers.get('x-request-id') ?? 'missing').waitFor();
  await dialog.getByText(/^laptop \(key_\w+\)$/).waitFor();
  assert.ok((await readByCurl(page, dialog)).includes(again.headers.get('x-request-id') ?? 'missing'));
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.getByLabel('Outcome').selectOption('error');
  await page.getByText('No call matches.').waitFor();
  assert.equal(new URL(page.url()).searchParams.get('outcome'), 'error');

  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('link', { name: 'Keys' }).click();
  const keyRow = page.getByRole('row', { name: /laptop/ });
  const used = keyRow.getByRole('cell').nth(5);
  await untilEqual(async () => /\d/.test(await used.innerText()), true, 'the last call is shown');
  await page.getByRole('button', { name: 'Disable' }).click();
  await page.getByRole('button', { name: 'Enable' }).waitFor();
  assert.equal((await call('demo/echo')).status, 401);
  await page.getByRole('button', { name: 'Enable' }).click();
  await page.getByRole('button', { name: 'Disable' }).waitFor();
  await page.getByRole('button', { name: 'Replace' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Replace it' }).click();
  const next = await page.locator('pre').first().innerText();
  assert.notEqual(next, key);
  for (const each of [key, next]) assert.equal((await call('demo/echo', each)).status, 200, 'the old one has an hour');
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove it' }).click();
  await page.getByRole('button', { name: 'I have stored it' }).click();
  await page.getByText('You have no keys yet.').waitFor();
  for (const each of [key, next]) assert.equal((await call('demo/echo', each)).status, 401);
  assert.deepEqual(problems, []);
});

/** A place where it is another day than in UTC, whatever the time is. */
const FAR_ZONE = new Date().getUTCHours() < 10 ? 'Pacific/Pago_Pago' : 'Pacific/Kiritimati';
/** Browsers and Node may write different spaces. */
const plainSpaces = (text: string) => text.replaceAll(/\s/g, ' ');
const textThere = (at: string) => plainSpaces(new Date(at).toLocaleString('en-US', { timeZone: FAR_ZONE }));

test('times are those of the browser, and its days are the days of filters', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/audit', {}, { timezoneId: FAR_ZONE });
  const moment = page.locator('tbody time').first();
  const at = (await moment.getAttribute('datetime')) ?? '';
  assert.ok(Math.abs(Date.now() - Date.parse(at)) < 600_000, at);
  assert.equal(plainSpaces(await moment.innerText()), textThere(at));
  const note = plainSpaces((await moment.getAttribute('title')) ?? '');
  assert.match(note, / · request \S+$/);
  assert.equal(note.replace(/ · request .*/, ''), `${textThere(at)} ${FAR_ZONE}`);

  await page.goto(`${url}/console/keys`);
  await page.getByLabel('Name').fill('laptop');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const key = await page.locator('pre').first().innerText();
  const answered = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] }),
  });
  assert.equal(answered.status, 200, await answered.text());
  const today = new Intl.DateTimeFormat('en-CA', { timeZone: FAR_ZONE }).format(new Date());
  const utcDay = new Date().toISOString().slice(0, 10);
  assert.notEqual(today, utcDay);
  const calls = page.getByRole('row', { name: /demo\/echo ok 200/ });
  await until('the call to be listed for its day there', async () => {
    await page.goto(`${url}/console/calls?from=${today}&to=${today}`);
    await page.getByRole('row').nth(1).or(page.getByText('No call matches.')).first().waitFor();
    return (await calls.count()) === 1;
  });
  await page.goto(`${url}/console/calls?from=${utcDay}&to=${utcDay}`);
  await page.getByText('No call matches.').waitFor();
  await page.getByLabel('From').fill(today);
  await page.getByLabel('To', { exact: true }).fill(today);
  await calls.first().waitFor();

  await page.goto(`${url}/console/usage?by=day`);
  await page.getByRole('row', { name: new RegExp(`^${today} 1 0 `) }).waitFor();
  assert.match(await page.getByTitle(`Days in ${FAR_ZONE}`).innerText(), new RegExp(` to ${today}$`));
  assert.deepEqual(problems, []);
});
