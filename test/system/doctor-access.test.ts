import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessFindings } from '../../src/system/doctor/diagnose.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const PUBLIC = 'accounts: { public_url: "https://accounts.example" }';

/** What doctor notes about a configuration, by the name of the setting. */
function notesOf(text: string, host = '127.0.0.1'): ReadonlyMap<string, string> {
  const { settings, problems } = resolveTrestle(text);
  assert.deepEqual(problems, []);
  const findings = accessFindings(settings, host).filter(({ state }) => state === 'note');
  return new Map(findings.map(({ name, text: said }) => [name, said]));
}

test('DA-5: doctor warns of a proxy that trusted_proxies does not list', () => {
  assert.match(
    notesOf(PUBLIC).get('trusted_proxies') ?? '',
    /all people seem to come from one address.*list the proxy/,
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
