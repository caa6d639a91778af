import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { dataFiles } from '../../src/system/data-directory.ts';
import { accessFindings, registrationFinding } from '../../src/system/doctor/diagnose.ts';
import { webhookFindings, workspaceFindings } from '../../src/system/doctor/findings.ts';
import { storeLocation } from '../../src/system/stores.ts';
import { openServiceDatabase } from '../kit/open-service-database.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';
import { temporaryFolder } from '../kit/running-program.ts';

const PUBLIC = 'accounts: { public_url: "https://accounts.example" }';

/** What doctor notes about a configuration, by the name of the setting. */
function notesOf(
  text: string,
  host = '127.0.0.1',
  chosen: Parameters<typeof registrationFinding>[1] = [],
): ReadonlyMap<string, string> {
  const { settings, problems } = resolveTrestle(text);
  assert.deepEqual(problems, []);
  const all = [...accessFindings(settings, host), registrationFinding(settings, chosen)];
  const findings = all.filter(({ state }) => state === 'note');
  return new Map(findings.map(({ name, text: said }) => [name, said]));
}

test('DA-5: doctor warns of a proxy that trusted_proxies does not list', () => {
  assert.match(
    notesOf(PUBLIC).get('trusted_proxies') ?? '',
    /everyone seems to come from one address.*list the address of the proxy/,
  );
});

for (const [what, text, host] of [
  ['a listed proxy', `trusted_proxies: ["10.0.0.1"]\n${PUBLIC}`, '127.0.0.1'],
  ['a public address on this machine', 'accounts: { public_url: "http://localhost:8787" }', '127.0.0.1'],
  ['no public address', 'accounts: {}', '127.0.0.1'],
  ['an address that people reach directly', PUBLIC, '0.0.0.0'],
] as const) {
  test(`DA-5: doctor does not warn of a proxy with ${what}`, () => {
    assert.equal(notesOf(text, host).has('trusted_proxies'), false);
  });
}

test('doctor says where mails stay while others can reach the program and no mail server is named', () => {
  const name = 'accounts.smtp.host';
  assert.match(notesOf(PUBLIC).get(name) ?? '', /reach nobody.*outbox folder.*name a mail server/);
  assert.ok(notesOf('{}', '0.0.0.0').has(name));
  assert.equal(notesOf('{}').has(name), false, 'on this machine alone');
  const named = 'accounts: { public_url: "https://a.example", smtp: { host: mail.example, from: "t@a.example" } }';
  assert.equal(notesOf(named).has(name), false);
  assert.equal(notesOf('accounts: { issuer: "https://a.example" }', '0.0.0.0').has(name), false, 'people of another');
});

test('DA-1: doctor warns of open registration only with a plan that pays', () => {
  const paying = 'plans: { pro: { models: ["*"], budget: { usd: 5 } } }\naccounts: { default_plan: pro';
  const warning = /open, and the plan "pro" pays/;
  assert.match(notesOf(`${paying} }`).get('accounts.registration') ?? '', warning);
  assert.match(
    notesOf(`${paying}, registration: open }\nlisten: "0.0.0.0:1"`).get('accounts.registration') ?? '',
    warning,
  );
  assert.equal(notesOf(`${paying}, registration: invite }`).has('accounts.registration'), false);
  assert.equal(notesOf(`${paying}, public_url: "https://a.example" }`).has('accounts.registration'), false);
  assert.equal(notesOf('accounts: { registration: open }').has('accounts.registration'), false, 'the free plan');
  const plans = 'plans: { pro: { models: ["*"], budget: { usd: 5 } } }';
  const chosen = [
    { name: 'default_plan', value: 'pro' },
    { name: 'registration', value: 'open' },
  ];
  const isNoted = (text: string) => notesOf(text, '127.0.0.1', chosen).has('accounts.registration');
  assert.equal(isNoted(`${plans}\nlisten: "0.0.0.0:1"`), true, 'as chosen at set-up');
  assert.equal(isNoted(`${plans}\naccounts: { default_plan: free }`), false, 'the configuration comes first');
  assert.equal(isNoted('listen: "0.0.0.0:1"'), false, 'the plan is gone');
});

test('DA-19: doctor warns of a web console whose origin is not listed', () => {
  const noteOf = (more: string) =>
    notesOf(`accounts: { frontend_url: "https://console.example/app"${more} }`).get('accounts.allowed_origins');
  assert.match(noteOf('') ?? '', /pages of https:\/\/console\.example .* list the origin/);
  assert.match(noteOf(', allowed_origins: ["https://console.example:8443"]') ?? '', /list the origin/);
  assert.equal(noteOf(', allowed_origins: ["https://console.example"]'), undefined);
  assert.equal(noteOf(', public_url: "https://console.example"'), undefined);
  assert.equal(notesOf('accounts: {}').has('accounts.allowed_origins'), false);
});

test('doctor lists webhooks that fail or are switched off, by host and without their path', async (t) => {
  const files = dataFiles(await temporaryFolder(t));
  const { settings } = resolveTrestle('accounts: {}');
  assert.deepEqual(await webhookFindings(settings, files), [], 'before the first start there is no database');
  const location = storeLocation(settings.database, files, 'accounts');
  const definition = { name: 'accounts', migrations: accountsMigrations, location, clock: systemClock };
  const database = await openServiceDatabase<AccountsSchema>(definition);
  const row = { url: 'https://hooks.example.org/secret-path', events: '[]', secret: '', created_by: '', created_at: 0 };
  const add = (id: string, failing_since: number | null, disabled_at: number | null) =>
    database.query
      .insertInto('webhooks')
      .values({ ...row, id, failing_since, disabled_at, dropped: 0 })
      .compile();
  const since = Date.UTC(2030, 0, 1);
  await database.write([add('whk_1', null, null), add('whk_2', since, null), add('whk_3', since, since + 259_200_000)]);
  await database.close();
  const found = await webhookFindings(settings, files);
  assert.deepEqual(
    found.map(({ name, state }) => [name, state]),
    [
      ['webhook whk_2', 'note'],
      ['webhook whk_3', 'note'],
    ],
  );
  assert.match(found[0]?.text ?? '', /no delivery to hooks\.example\.org has succeeded since 2030-01-01T/);
  assert.match(found[1]?.text ?? '', /switched off at 2030-01-04T.*POST \/api\/auth\/admin\/webhooks\/whk_3\/enable/);
  assert.doesNotMatch(JSON.stringify(found), /secret-path/);
});

test('doctor warns of a workspace root that is not there, or is a file', async (t) => {
  const [data, root] = [await temporaryFolder(t), await temporaryFolder(t)];
  const file = join(root, 'file');
  await writeFile(file, '');
  const found = await workspaceFindings([root, file, join(root, 'missing')], data);
  assert.deepEqual(
    found.map(({ state, name, text }) => [state, name, text.slice(0, text.indexOf(':'))]),
    [file, join(root, 'missing')].map((path) => ['note', 'bridge.workspace_roots', `${path} is not a folder`]),
  );
});
