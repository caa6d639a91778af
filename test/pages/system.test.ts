import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { timeLimit } from '../kit/time.ts';
import { logIn, openAsAda, PASSWORD } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

test('the system is shown: its last hour, what the doctor finds, its instances and its settings', async (t) => {
  const program = await startProgram(t, { environment: { TRESTLE_METRICS_TOKEN: 'a-token-for-metrics-0123456789' } });
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.getByRole('link', { name: 'System' }).click();
  const hour = page.getByRole('region', { name: 'The last hour' });
  await hour.getByRole('img', { name: /^Memory: [\d,]+ MB now, highest [\d,]+ MB$/ }).waitFor();
  const health = page.getByRole('region', { name: 'Health' });
  // The doctor starts every agent that it finds, and waits up to 15 seconds for each.
  await health.getByText(/\d+ fine; checked/).waitFor({ timeout: timeLimit(40_000) });
  await health.getByText(`data directory ${program.dataDirectory}`, { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Instances' }).getByText('(this one)').waitFor();
  const settings = page.getByRole('region', { name: 'Settings' });
  await settings.getByText('env TRESTLE_METRICS_TOKEN').waitFor();
  assert.equal((await settings.textContent())?.includes('a-token-for-metrics'), false, 'a secret is masked');
  await settings.getByLabel('Search settings').fill('console.enabled');
  await settings.getByText('needs a restart').waitFor();
  const upkeep = page.getByRole('region', { name: 'Backup and monitoring' });
  await upkeep.getByText('npx trestle backup').waitFor();
  for (const name of ['Metrics for Prometheus', 'API reference']) {
    const address = await upkeep.getByRole('link', { name }).getAttribute('href');
    const headers = { authorization: 'Bearer a-token-for-metrics-0123456789' };
    assert.equal((await fetch(new URL(address ?? '', program.url), { headers })).status, 200, name);
  }
  await untilEqual(() => page.getByRole('region', { name: 'Nodes' }).count(), 0, 'there are no other nodes');
  await page.getByRole('button', { name: 'Check again' }).click();
  await health.getByText(/\d+ fine; checked/).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(problems, []);
});

test('other nodes are shown with their state, and where a call would go', async (t) => {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const node = { id: 'gpu', role: 'worker', bridge_endpoint: 'http://127.0.0.1:9', capabilities: ['gpu'] };
  const distributed = { local_node_id: 'here', task_forward_token: 'a-token-for-forwarding-0123456789', nodes: [node] };
  await writeFile(config, JSON.stringify({ distributed }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console/system`);
  const nodes = page.getByRole('region', { name: 'Nodes' });
  await nodes.getByRole('row', { name: /^gpu up .*worker.*http:\/\/127\.0\.0\.1:9/ }).waitFor();
  await nodes.getByText('This node is here').waitFor();
  await nodes.getByRole('button', { name: 'Ask' }).click();
  const told = nodes.getByRole('status');
  const explained = await fetch(`${program.url}/api/bridge/nodes/explain?method=session.start`);
  const { reason } = (await explained.json()) as { reason: string };
  await told.getByText(reason).waitFor();
  await nodes.getByLabel('Method').fill('no.such.method');
  await nodes.getByRole('button', { name: 'Ask' }).click();
  const other = await fetch(`${program.url}/api/bridge/nodes/explain?method=no.such.method`);
  await told.getByText(((await other.json()) as { reason: string }).reason).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(problems, []);
});

test('operators find the system in the navigation; others do not, and are refused', async (t) => {
  const { page, url } = await openAsAda(t, '/console/system');
  await page.getByRole('region', { name: 'Instances' }).getByText('(this one)').waitFor();
  const token = await page.evaluate(async () => {
    const response = await fetch('/api/auth/admin/invitations', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ role: 'user' }),
    });
    return new URLSearchParams(new URL(((await response.json()) as { link: string }).link).hash.slice(1)).get('token');
  });
  const accepted = await fetch(`${url}/api/auth/invitations/accept`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token, name: 'Ben', email: 'ben@example.com', password: PASSWORD }),
  });
  assert.equal(accepted.ok, true);
  const ben = await openPage(t, `${url}/login?next=${encodeURIComponent('/console/system')}`);
  await logIn(ben.page, 'ben@example.com', PASSWORD);
  await ben.page.getByRole('alert').first().waitFor();
  const navigation = ben.page.getByRole('navigation', { name: 'Console' });
  await navigation.getByRole('link', { name: 'Models' }).waitFor();
  await untilEqual(() => navigation.getByRole('link', { name: 'System' }).count(), 0);
});
