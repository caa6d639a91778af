import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseListenAddress } from '../../../src/platform/network-address/ip-address.ts';

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

const BAD: readonly (readonly [text: string, fix: string | undefined])[] = [
  [':8787', 'say 0.0.0.0:8787 for every address of this machine'],
  ['*:8787', 'say 0.0.0.0:8787 for every address'],
  ['8787', 'say 127.0.0.1:8787'],
  ['localhost', 'say localhost:8787'],
  ['127.0.0.1', 'say 127.0.0.1:8787'],
  ['::1', 'say [::1]:8787'],
  ['::1:9000', 'say [::1]:9000'],
  ['fe80::1:2:3:4:5:6:8080', 'say [fe80::1:2:3:4:5:6]:8080'],
  ['127.0.0.1:65536', undefined],
  ['127.0.0:80', undefined],
  ['1.2.3.256:80', undefined],
  ['http://localhost:80', undefined],
  ['[127.0.0.1]:80', undefined],
  ['-a:80', undefined],
  ['a b:80', undefined],
  ['', undefined],
];

for (const [text, fix] of BAD) {
  test(`"${text}" is refused${fix === undefined ? '' : ` with the advice to ${fix}`}`, () => {
    const parsed = parseListenAddress(text);
    assert.ok('wrong' in parsed, JSON.stringify(parsed));
    assert.equal(parsed.fix, fix);
  });
}
