import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cookieText, readCookie } from '../../src/accounts/cookies.ts';
import { FORWARDED_HEADER, forwardHeaders, readForwarded } from '../../src/bridge/forwarding/call-node.ts';
import { matchesOrigin } from '../../src/platform/http/cross-origin.ts';
import { createHostCheck } from '../../src/platform/http/listen-address.ts';
import { createRequestIds, forwardedAddress } from '../../src/platform/http/request-state.ts';
import { bearerToken, type RequestHead } from '../../src/platform/http/surface.ts';
import fc from '../kit/properties.ts';

import { anyText, outcomeOf, runs } from './any-input.ts';

const headWith = (headers: Record<string, string>) => ({ headers }) as unknown as RequestHead;
const token = fc.stringMatching(/^[\w.~+/-]{1,40}=*$/);
const noise = fc
  .array(fc.oneof(anyText, fc.constantFrom('a=b', 'xc_session', '=', ';', ' ')))
  .map((parts) => parts.join(';'));

test('G18: a cookie that we set is read among any others; two different ones of its name are none', () => {
  fc.assert(
    fc.property(noise, noise, token, token, (before, after, value, other) => {
      fc.pre(!before.includes('xc_session') && !after.includes('xc_session'));
      const [pair = ''] = cookieText('xc_session', value, { secure: true, maxAgeSeconds: 1 }).split(';');
      const read = (cookie: string) => readCookie({ headers: { cookie } }, 'xc_session');
      assert.equal(read(`${before};${pair};${after}`), value);
      assert.equal(read(`${pair};${before}; xc_session=${other}`), value === other ? value : '');
    }),
    runs(300),
  );
});

test('G18: any cookie header is read without a throw, and no cookie has a line break or a semicolon in it', () => {
  fc.assert(
    fc.property(noise, anyText, (cookie, name) => {
      assert.doesNotMatch(readCookie({ headers: { cookie } }, name), /;/);
    }),
    runs(300),
  );
});

test('G18: a bearer token is what stands after the word, and anything else is none', () => {
  fc.assert(
    fc.property(token, fc.constantFrom('Bearer ', 'bearer  ', 'BEARER '), anyText, (value, word, other) => {
      assert.equal(bearerToken(headWith({ authorization: `${word}${value}` })), value);
      assert.doesNotMatch(bearerToken(headWith({ authorization: other })), /\s/);
      assert.equal(bearerToken(headWith({ authorization: value })), '');
    }),
    runs(300),
  );
});

test('G18: an origin is let in only when it is listed, whatever port and however it is dressed up', () => {
  const listed = ['http://localhost:*', 'https://app.example'];
  const near = fc.tuple(fc.constantFrom('http://localhost', 'https://app.example', 'null', ''), anyText);
  fc.assert(
    fc.property(
      near.map(([start, rest]) => `${start}${rest}`),
      (origin) => {
        const allowed = matchesOrigin(origin, listed);
        assert.equal(
          allowed,
          /^(?:http:\/\/localhost(?::\d{1,5})?|https:\/\/app\.example)$/.test(origin) && !origin.endsWith('\n'),
        );
      },
    ),
    runs(500),
  );
});

test('G18: an open listener on this machine answers to no name that a stranger can own', () => {
  const check = createHostCheck({ boundHost: '127.0.0.1', insecure: false, allowedHosts: [], isOpen: () => true });
  const host = fc.oneof(
    anyText,
    fc.webAuthority(),
    fc.tuple(fc.constantFrom('localhost', '127.0.0.1', '[::1]', 'a.localhost'), anyText).map((parts) => parts.join('')),
  );
  fc.assert(
    fc.property(host, (name) => {
      const refusal = check({ headers: { host: name }, rawHeaders: ['Host', name], httpVersion: '1.1' });
      if (refusal !== undefined) return;
      const { hostname } = new URL(`http://${name}/`);
      assert.match(hostname, /^(?:127\.\d+\.\d+\.\d+|\[::1\]|\[::ffff:7f[0-9a-f:]*\]|(?:.*\.)?localhost\.?)$/);
    }),
    runs(500),
  );
});

test('G18: the client behind proxies is an address, and what the client itself claims is not believed', () => {
  const hop = fc.oneof(
    anyText,
    fc.ipV4(),
    fc.ipV6(),
    fc.ipV4().map((ip) => `${ip}:80`),
  );
  fc.assert(
    fc.property(fc.array(hop), fc.ipV4(), (hops, last) => {
      const isProxy = (address: string) => address === '10.0.0.1';
      assert.equal(
        forwardedAddress('10.0.0.1', [...hops, last].join(','), isProxy),
        last === '10.0.0.1' ? forwardedAddress(last, hops.join(','), isProxy) : last,
      );
    }),
    runs(300),
  );
});

test('G18: a request id is the harmless one that was given, or one of ours', () => {
  const ids = createRequestIds({ bytes: (count) => new Uint8Array(count) });
  fc.assert(
    fc.property(fc.oneof(anyText, fc.anything()), (given) => {
      assert.match(ids(given), /^[A-Za-z0-9_-]{1,128}$/);
    }),
    runs(300),
  );
});

test('G18: headers of a forwarded request are read as they were written, and any others are refused', () => {
  const id = fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/);
  const word = fc.stringMatching(/^[A-Za-z0-9:._-]{0,40}$/);
  fc.assert(
    fc.property(id, id, fc.nat(999), word, word, (source, target, hop, trace, owner) => {
      const sent = { source, target, hop, trace, owner, person: '', team: '' };
      assert.deepEqual(readForwarded(forwardHeaders(sent, '1.0.0'), '/acp'), { ...sent, path: '/acp' });
    }),
    runs(200),
  );
  const names = fc.constantFrom(
    FORWARDED_HEADER,
    ...Object.keys(
      forwardHeaders({ source: 's', target: 't', hop: 1, trace: 'x', owner: 'y', person: 'z', team: 't' }, '1'),
    ),
  );
  fc.assert(
    fc.property(fc.dictionary(names, fc.oneof(anyText, fc.constantFrom('1', 'a'))), (headers) => {
      const outcome = outcomeOf(() => readForwarded(headers, '/acp'));
      if ('refused' in outcome) assert.equal(outcome.refused, 'INVALID_REQUEST');
    }),
    runs(300),
  );
});
