// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resolveSettings } from '../../../src/platform/config/load-configuration.ts';
import { setting } from '../../../src/platform/config/setting.ts';
import type { Setting } from '../../../src/platform/config/setting-declaration.ts';

function resolve(value: Setting<unknown>, text: string | undefined, environment: Readonly<Record<string, string>>) {
  const schema = setting.group('', { value });
  return resolveSettings({
    declaration: {
      schema,
      environmentPrefix: 'T_',
      fileVariable: 'T_FILE',
      fileName: 'f',
      otherVariables: [],
      check: () => [],
    },
    ...(text !== undefined && { file: { text: `value: ${text}`, name: 'f', directory: '/conf' } }),
    environment,
    flags: {},
    homeDirectory: '/home/ann',
    workingDirectory: '/work',
  });
}

interface KindCase {
  readonly schema: Setting<unknown>;
  /** What stands in a file, and what comes out. */
  readonly good: Readonly<Record<string, unknown>>;
  /** What stands in a file, and what the problem says. */
  readonly bad: Readonly<Record<string, RegExp>>;
  /** What stands in a variable, and what comes out. */
  readonly variable?: Readonly<Record<string, unknown>>;
}

const KINDS: Readonly<Record<string, KindCase>> = {
  text: {
    schema: setting.text({ pattern: '^[a-z ]+$', expects: 'small letters' }),
    good: { abc: 'abc', '"a b"': 'a b' },
    bad: {
      '12': /is a number; quote it to make it a string/,
      true: /is a boolean; quote it/,
      ABC: /expected small letters/,
      '""': /is empty/,
      '"a\\nb"': /control character/,
      '[a]': /a list where one value belongs/,
      '{ a: 1 }': /a mapping where/,
    },
    variable: { abc: 'abc' },
  },
  token: {
    schema: setting.token({}),
    good: { 'abc-123': 'abc-123', '"!~"': '!~' },
    bad: {
      '"a b"': /the value has a space/,
      '"a\\n"': /the value has a space or a line end/,
      '"a\\u0007"': /the value has a control character/,
      äöü: /outside ASCII/,
      '123': /the value is a number/,
    },
    variable: { '123': '123' },
  },
  key: {
    schema: setting.keyBytes({ bytes: 4 }),
    good: { 'AAECAw==': 'AAECAw==', AAECAw: 'AAECAw', '-_-_AA': '-_-_AA' },
    bad: {
      AAEC: /the value holds 3 bytes; expected 4 bytes in base64/,
      '"!!"': /is not base64/,
      '12': /is not base64/,
    },
  },
  path: {
    schema: setting.path({}),
    good: {
      './data': '/conf/data',
      data: '/conf/data',
      '../x': '/x',
      '/srv//x/': '/srv/x',
      '"~"': '/home/ann',
      '~/code': '/home/ann/code',
    },
    bad: {
      '~bob/x': /home; write that path in full/,
      '"a\\u0000"': /control character/,
      '12': /quote it to make it a string/,
    },
    variable: { '/srv/x': '/srv/x', '~/x': '/home/ann/x' },
  },
  command: {
    schema: setting.command({}),
    good: { codex: 'codex', './bin/agent': '/conf/bin/agent', '~/bin/agent': '/home/ann/bin/agent' },
    bad: { '[codex]': /one value belongs/, '"a\\nb"': /control/ },
    variable: { codex: 'codex' },
  },
  url: {
    schema: setting.url({ schemes: ['http', 'https'] }),
    good: {
      'http://a.example/v1': 'http://a.example/v1',
      'http://a.example/': 'http://a.example',
      'https://[::1]:80': 'https://[::1]:80',
    },
    bad: {
      'ftp://a': /another scheme; expected a URL that starts with http/,
      'a.example': /is not a URL/,
      'http://u:p@a': /has a user or password/,
      'http://a?b=c': /query/,
      '"http://a b"': /is not a URL/,
      '"http://"': /is not a URL/,
    },
  },
  'url with credentials': {
    schema: setting.url({ schemes: ['postgres'], credentials: true }),
    good: {
      'postgres://u:p@h/db?sslmode=require': 'postgres://u:p@h/db?sslmode=require',
      'postgres:///db': 'postgres:///db',
    },
    bad: {
      'mysql://u:p@h': /the value has another scheme/,
      'postgres://u:p#x@h': /the value is not a URL/,
      'postgres://u:12/x@h': /the value has an @ after the host/,
    },
  },
  origin: {
    schema: setting.origin({ anyPort: true }),
    good: {
      'https://app.example': 'https://app.example',
      'http://localhost:*': 'http://localhost:*',
      'http://a:8080': 'http://a:8080',
      'tauri://localhost': 'tauri://localhost',
    },
    bad: {
      'https://app.example/': /say https:\/\/app\.example$/,
      'https://APP.example': /say https:\/\/app\.example$/,
      'https://a:443': /say https:\/\/a$/,
      '"*"': /wildcard/,
      'https://*.a': /wildcard/,
      '"null"': /is not an origin/,
      'app.example': /is not an origin/,
    },
  },
  'origin with its port': {
    schema: setting.origin({}),
    good: { 'https://app.example': 'https://app.example' },
    bad: { 'http://a:*': /is not an origin/ },
  },
  'host name': {
    schema: setting.hostName({}),
    good: {
      'App.Example': 'app.example',
      '10.0.0.1': '10.0.0.1',
      '"::1"': '[::1]',
      '"[::1]"': '[::1]',
      localhost: 'localhost',
    },
    bad: {
      'https://app.example/x': /say app\.example$/,
      'app.example:80': /say app\.example$/,
      '"*.example"': /is not a host name/,
      '"a b"': /is not a host name/,
      '1.2.3': /is not a host name/,
    },
  },
  cidr: {
    schema: setting.cidr({}),
    good: { '10.0.0.0/8': '10.0.0.0/8', '192.168.1.7': '192.168.1.7', '"fd00::/8"': 'fd00::/8' },
    bad: { '10.0.0.0/33': /not a range/, localhost: /not a range/, '010.0.0.0/8': /not a range/ },
  },
  'listen address': {
    schema: setting.listenAddress({}),
    good: { '127.0.0.1:8787': '127.0.0.1:8787', '"[::1]:0"': '[::1]:0' },
    bad: { '":8787"': /say 0\.0\.0\.0:8787/, '8787': /say 127\.0\.0\.1:8787/, '"*:1"': /say 0\.0\.0\.0:1/ },
  },
  choice: {
    schema: setting.choice(['debug', 'info'], {}),
    good: { info: 'info' },
    bad: {
      inof: /expected one of debug, info; did you mean "info"\?/,
      loud: /expected one of debug, info$/,
      '1': /is not a possible value/,
    },
    variable: { ' info ': 'info' },
  },
  integer: {
    schema: setting.integer({ minimum: 1, maximum: 10 }),
    good: { '1': 1, '10': 10, '0x5': 5 },
    bad: {
      '0': /0 is out of range; expected a whole number from 1 to 10/,
      '11': /out of range/,
      '1.5': /is not a whole number/,
      many: /"many" is not a whole number/,
      '"5"': /is a text; write 5 without quotes/,
      '.inf': /not a whole number/,
      '.nan': /not a whole number/,
      '1e400': /not a whole number/,
      true: /not a whole number/,
    },
    variable: { '5': 5, ' 5 ': 5 },
  },
  number: {
    schema: setting.number({ minimum: 0, maximum: 1 }),
    good: { '0.5': 0.5, '0.0000001': 1e-7, '1e-7': 1e-7, '0': 0 },
    bad: {
      '2': /out of range/,
      '-0.1': /out of range/,
      x: /is not a number/,
      '"0.5"': /without quotes/,
      '.nan': /is not a number/,
    },
    variable: { '0.5': 0.5, '1e-3': 0.001 },
  },
  flag: {
    schema: setting.flag({}),
    good: { true: true, false: false },
    bad: { '"true"': /is neither true nor false/, yes: /expected true or false/, '1': /neither/ },
    variable: { '1': true, Yes: true, on: true, '0': false, no: false, off: false },
  },
  duration: {
    schema: setting.duration({ minimum: '1s', maximum: '1h' }),
    good: { '30s': 30_000, '1500ms': 1500, '1h': 3_600_000 },
    bad: {
      '30': /has no unit; say 30s for seconds or 30ms for milliseconds/,
      '0s': /out of range; expected a duration from 1s to 1h/,
      '2h': /out of range/,
      soon: /is not a duration/,
      '1.5s': /is not a duration/,
    },
    variable: { '30s': 30_000 },
  },
  list: {
    schema: setting.list(setting.integer({ minimum: 0, maximum: 9 }), { description: '', minimum: 1 }),
    good: { '[1, 2]': [1, 2] },
    bad: {
      '1': /a single value where a list belongs/,
      '[]': /too short/,
      '[1, x]': /value\[1\]: "x" is not a whole number/,
      '{ a: 1 }': /a mapping where a list/,
      '[1, ~]': /is empty/,
    },
    variable: { '1, 2,,3': [1, 2, 3] },
  },
  record: {
    schema: setting.record(setting.text({}), {
      description: '',
      keyPattern: '^[a-z]+$',
      keyExpects: 'small letters',
    }),
    good: { '{ a: x, b: y }': { a: 'x', b: 'y' }, '{}': {} },
    bad: {
      '{ A: x }': /value\.A: the key does not have the right form; expected small letters/,
      '[a]': /a list where keys belong/,
      '{ a: 1 }': /value\.a: 1 is a number/,
      '{ __proto__: x }': /right form/,
    },
    variable: { '{"a": "x"}': { a: 'x' }, 'a: x': { a: 'x' } },
  },
};

for (const [kind, { schema, good, bad, variable = {} }] of Object.entries(KINDS)) {
  for (const [text, value] of Object.entries(good)) {
    test(`${kind}: ${text} in a file is accepted`, () => {
      const { settings, problems } = resolve(schema, text, {});
      assert.deepEqual({ problems, value: settings.value }, { problems: [], value });
    });
  }
  for (const [text, problem] of Object.entries(bad)) {
    test(`${kind}: ${text} in a file is refused`, () => {
      const { problems } = resolve(schema, text, {});
      assert.equal(problems.length, 1);
      const { where, path, wrong, right } = problems[0] ?? assert.fail();
      assert.match(`${path}: ${wrong}; ${right}`, problem);
      assert.match(where, /^f:1:\d+$/);
    });
  }
  for (const [text, value] of Object.entries(variable)) {
    test(`${kind}: "${text}" in a variable is accepted, also through a reference in the file`, () => {
      const direct = resolve(schema, undefined, { T_VALUE: text });
      assert.deepEqual({ problems: direct.problems, value: direct.settings.value }, { problems: [], value });
      const referenced = resolve(schema, '"${env:OTHER}"', { OTHER: text });
      assert.deepEqual({ problems: referenced.problems, value: referenced.settings.value }, { problems: [], value });
    });
  }
}
