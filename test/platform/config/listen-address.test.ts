import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isHostName, parseListenAddress, withoutSlash } from '../../../src/platform/network-address/ip-address.ts';

const GOOD: readonly (readonly [text: string, host: string, port: number])[] = [
  ['127.0.0.1:8787', '127.0.0.1', 8787],
  ['0.0.0.0:80', '0.0.0.0', 80],
  ['localhost:0', 'localhost', 0],
  ['[::1]:8787', '::1', 8787],
  ['[::]:65535', '::', 65_535],
  ['my-host.example:1', 'my-host.example', 1],
];

for (const [text, host, port] of GOOD) {
  test(`${text} is an address to listen on`, () => assert.deepEqual(parseListenAddress(text), { host, port }));
}

const BAD: readonly (readonly [text: string, wrong: string, fix: string | undefined])[] = [
  [':8787', 'names no address', 'say 0.0.0.0:8787 for every address of this machine'],
  ['*:8787', 'has * for an address', 'say 0.0.0.0:8787 for every address'],
  ['8787', 'is a port without an address', 'say 127.0.0.1:8787'],
  ['localhost', 'has no port', 'say localhost:8787'],
  ['127.0.0.1', 'has no port', 'say 127.0.0.1:8787'],
  ['::1', 'has no port', 'say [::1]:8787'],
  ['::1:9000', 'has no brackets', 'say [::1]:9000'],
  ['fe80::1:2:3:4:5:6:8080', 'has no brackets', 'say [fe80::1:2:3:4:5:6]:8080'],
  ['127.0.0.1:65536', 'has a port above 65535', undefined],
  ['[::1]:999999', 'has a port above 65535', undefined],
  ['127.0.0:80', 'names something that is neither an address nor a host name', undefined],
  ['1.2.3.256:80', 'names something that is neither an address nor a host name', undefined],
  ['[127.0.0.1]:80', 'names something that is neither an address nor a host name', undefined],
  ['[localhost]:80', 'names something that is neither an address nor a host name', undefined],
  ['[]:80', 'names something that is neither an address nor a host name', undefined],
  ['-a:80', 'names something that is neither an address nor a host name', undefined],
  ['a b:80', 'names something that is neither an address nor a host name', undefined],
  ['http://localhost:80', 'is not an address with a port', undefined],
  ['x[::1]:80', 'is not an address with a port', undefined],
  ['[::1]:80x', 'is not an address with a port', undefined],
  ['localhost:1234567', 'is not an address with a port', undefined],
  ['localhost:', 'is not an address with a port', undefined],
  ['', 'is not an address with a port', undefined],
];

for (const [text, wrong, fix] of BAD) {
  test(`"${text}" is refused: it ${wrong}${fix === undefined ? '' : `, with the advice to ${fix}`}`, () => {
    assert.deepEqual(parseListenAddress(text), { wrong, ...(fix !== undefined && { fix }) });
  });
}

test('a host name has labels of 1 to 63 letters, digits and inner hyphens, and at most 253 characters', () => {
  const longest = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(61)}`;
  for (const name of ['a', 'my-host', 'node1', 'a.b2', '9to5.example', '1.a', 'under_score', 'a'.repeat(63), longest]) {
    assert.equal(isHostName(name), true, name);
  }
  const refused = ['', '.', 'a.', '.a', 'a..b', '-a', 'a-', 'x.-a', 'x.a-', 'a b', 'ä', 'a:b', '1', '1.2.3.4', 'a.1'];
  for (const name of [...refused, 'a'.repeat(64), `${longest}d`]) assert.equal(isHostName(name), false, name);
});

test('paths are appended to an address without its final slash', () => {
  assert.equal(withoutSlash('https://a.example/x/'), 'https://a.example/x');
  assert.equal(withoutSlash('https://a.example/x'), 'https://a.example/x');
});
