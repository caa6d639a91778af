import assert from 'node:assert/strict';
import { test } from 'node:test';
import { normalizeEmail } from '../../src/accounts/registration/new-user.ts';
import { refusalOfEndpoint } from '../../src/bridge/forwarding/endpoints.ts';
import { createCallbackRules } from '../../src/platform/callbacks/callback-post.ts';
import { classifyAddress, classifyHost } from '../../src/platform/network-address/classify-address.ts';
import {
  createAddressMatcher,
  formatIpAddress,
  parseIpAddress,
  unmapAddress,
} from '../../src/platform/network-address/ip-address.ts';
import fc from '../kit/properties.ts';
import { anyText, outcomeOf, runs } from './any-input.ts';

/** Addresses of this machine and its neighbourhood, in every spelling that a URL parser takes for them. */
const INSIDE = [
  ...['127.0.0.1', '0x7f.1', '2130706433', '0177.0.0.1', '127.1', '[::1]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]'],
  ...['10.0.0.1', '192.168.1.1', '172.16.0.1', '169.254.169.254', '[fe80::1]', '[fc00::1]', '0', '0.0.0.0', '[::]'],
  ...[
    'localhost',
    'LOCALHOST.',
    'a.localhost',
    '１２７.0.0.1',
    '127。0。0。1',
    'metadata.google.internal',
    '[64:ff9b::7f00:1]',
  ],
];
const ip = fc.oneof(fc.ipV4(), fc.ipV6());
const host = fc.oneof(
  anyText,
  fc.domain(),
  fc.ipV4(),
  fc.ipV6().map((text) => `[${text}]`),
  fc.constantFrom(...INSIDE),
);
const url = fc.oneof(
  anyText,
  fc.webUrl(),
  fc
    .tuple(fc.constantFrom('http', 'https', 'ftp', 'file', 'HTTP'), fc.constantFrom('', 'a@', 'a:b@'), host, anyText)
    .map(([scheme, user, name, rest]) => `${scheme}://${user}${name}${rest}`),
);

test('G18: an address is read as it was written, in its own spelling and in ours', () => {
  fc.assert(
    fc.property(ip, (text) => {
      const address = parseIpAddress(text);
      assert.ok(address !== undefined);
      assert.deepEqual(parseIpAddress(formatIpAddress(address)), address);
      assert.equal(classifyAddress(formatIpAddress(unmapAddress(address))), classifyAddress(text));
    }),
    runs(300),
  );
});

test('G18: any host is an address, a name or invalid, just as the URL parser reads it', () => {
  fc.assert(
    fc.property(host, (text) => {
      const found = classifyHost(text);
      if (found.kind === 'invalid') return;
      const parsed = URL.parse(`http://${text.includes(':') && !text.startsWith('[') ? `[${text}]` : text}/`);
      assert.ok(parsed !== null);
      const again = classifyHost(parsed.hostname);
      assert.equal(again.kind, found.kind);
      if (found.kind === 'address' && again.kind === 'address') assert.equal(again.class, found.class);
    }),
    runs(300),
  );
});

test('G18: ranges of any text match addresses or are refused; every address lies in its own range', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        anyText,
        fc.tuple(ip, fc.nat(140)).map(([base, bits]) => `${base}/${bits}`),
      ),
      ip,
      (range, text) => {
        const outcome = outcomeOf(() => createAddressMatcher([range]));
        if ('value' in outcome) outcome.value(text);
        else assert.equal(outcome.refused, 'ADDRESS_RANGE_INVALID');
        assert.equal(createAddressMatcher([text])(text), true);
      },
    ),
    runs(300),
  );
});

test('G18: a callback to any address goes to a public one, a name to be looked up, or is refused', () => {
  const rules = createCallbackRules({
    allow: [],
    allowedBy: 'some.setting',
    isOpen: () => false,
    ownAddresses: () => ['8.8.4.4'],
  });
  fc.assert(
    fc.property(url, (text) => {
      const outcome = outcomeOf(() => rules.read(text));
      if ('refused' in outcome) {
        assert.equal(outcome.refused, 'CALLBACK_URL_REFUSED');
        return;
      }
      const { url: place, name } = outcome.value;
      assert.match(place.protocol, /^https?:$/);
      assert.equal(place.username + place.password, '');
      if (name === undefined) assert.equal(classifyAddress(place.hostname), 'public');
      else assert.doesNotMatch(name, /(?:^|\.)localhost$/);
    }),
    runs(500),
  );
});

test('G18: no spelling of an address inside is open to callbacks', () => {
  const rules = createCallbackRules({
    allow: [],
    allowedBy: 'some.setting',
    isOpen: () => false,
    ownAddresses: () => [],
  });
  for (const inside of INSIDE) {
    assert.deepEqual(
      outcomeOf(() => rules.read(`http://${inside}/`)),
      { refused: 'CALLBACK_URL_REFUSED' },
      inside,
    );
  }
});

test('G18: an endpoint of any text is judged, and an address outside the tunnels is refused', () => {
  fc.assert(
    fc.property(url, (text) => {
      const refusal = refusalOfEndpoint(text);
      const found = classifyHost(URL.parse(text)?.hostname ?? '');
      if (found.kind === 'address' && found.class === 'public') assert.notEqual(refusal, undefined);
    }),
    runs(300),
  );
});

test('G18: an e-mail address of any text is refused, or stays the same when it is read again', () => {
  const address = fc.tuple(anyText, fc.oneof(fc.domain(), anyText)).map(([name, domain]) => `${name}@${domain}`);
  fc.assert(
    fc.property(fc.oneof(anyText, fc.emailAddress(), address), (text) => {
      const email = normalizeEmail(text);
      if (email === undefined) return;
      assert.equal(normalizeEmail(email), email);
      assert.doesNotMatch(email, /[\s\p{Cc}]/u);
    }),
    runs(300),
  );
});
