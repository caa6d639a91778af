import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openAsAda } from './logged-in.ts';
import { untilEqual } from './open-page.ts';

test('the matrix of roles is changed with the difference in view, also when someone else was quicker', async (t) => {
  const { page, problems } = await openAsAda(t, '/console/roles');
  const audit = page.getByRole('checkbox', { name: 'admin.audit.read for operator' });
  await audit.uncheck();
  const unsaved = page.getByRole('region', { name: 'Not saved yet' });
  await unsaved.getByText('operator loses admin.audit.read').waitFor();
  await unsaved.getByRole('button', { name: 'Save' }).click();
  await unsaved.waitFor({ state: 'detached' });
  await page.getByText('version 1').waitFor();
  await page.reload();
  await audit.waitFor();
  await untilEqual(() => audit.isChecked(), false);

  await page.getByLabel('New module').fill('reports');
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('checkbox', { name: 'reports for user' }).check();
  await unsaved.getByText('user gets reports').waitFor();
  const other = { version: 1, matrix: { 'admin.audit.read': { operator: false }, billing: { admin: true } } };
  const request = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(other) };
  const call = `fetch('/api/auth/admin/settings', ${JSON.stringify(request)}).then(({ status }) => status)`;
  assert.equal(await page.evaluate(call), 200);
  await unsaved.getByRole('button', { name: 'Save' }).click();
  await unsaved.getByText(/Someone else has saved version 2: billing is new/).waitFor();
  await unsaved.getByText('user gets reports').waitFor();
  await unsaved.getByRole('button', { name: 'Save' }).click();
  await page.getByText('version 3').waitFor();
  await page.reload();
  await page.getByRole('row', { name: /billing/ }).waitFor();
  await untilEqual(() => page.getByRole('checkbox', { name: 'reports for user' }).isChecked(), true);
  await page
    .getByRole('row', { name: /billing/ })
    .getByRole('button', { name: 'Remove' })
    .click();
  await unsaved.getByText('billing is removed').waitFor();
  await unsaved.getByRole('button', { name: 'Discard' }).click();
  await page.getByRole('row', { name: /billing/ }).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('409')),
    [],
  );
});

test('a proxy node gets a token that is shown once, and its reports are shown', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console');
  await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Proxy nodes' }).click();
  await page.getByRole('heading', { name: 'No proxy nodes yet' }).waitFor();
  await page.getByRole('button', { name: 'New node' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Id').fill('not a good id');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByLabel('Id').fill('node-1');
  await dialog.getByLabel('Name').fill('Node <b>');
  await dialog.getByLabel('Groups').fill('eu, fast');
  await dialog.getByRole('button', { name: 'Create' }).click();
  const token = await dialog.locator('pre').innerText();
  await dialog.getByRole('button', { name: 'Done' }).click();
  const row = page.getByRole('row', { name: /Node <b>.*node-1/ });
  await row.getByText('never heard').waitFor();
  await row.getByText('eu, fast').waitFor();

  const report = await fetch(`${url}/api/agent-server/v1/status`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ agentId: 'node-1', healthy: true, users: 12, xray: { running: true, clients: 7 } }),
  });
  assert.equal(report.status, 204, await report.text());
  await page.reload();
  await row.getByText('healthy').waitFor();
  await row.getByText('12').waitFor();
  await row.getByRole('button', { name: 'Remove' }).click();
  await dialog.getByRole('button', { name: 'Remove it' }).click();
  await page.getByRole('heading', { name: 'No proxy nodes yet' }).waitFor();
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('400')),
    [],
  );
});

test('where proxy nodes are switched off, nothing of them is offered', async (t) => {
  const { page, problems } = await openAsAda(t, '/console/roles', { accounts: { proxy_nodes: false } });
  const links = page.getByRole('navigation', { name: 'Console' }).getByRole('link');
  await links.filter({ hasText: 'Roles' }).waitFor();
  await untilEqual(() => links.filter({ hasText: 'Proxy nodes' }).count(), 0);
  assert.deepEqual(problems, []);
});
