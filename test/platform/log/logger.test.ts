import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createLogger, type LoggerOptions } from '../../../src/platform/log/logger.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

function recorded(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const output = { write: (line: string) => void lines.push(line), flush: () => undefined };
  const clock = createFakeClock(Date.UTC(2030, 0, 2, 3, 4, 5, 678));
  const logger = createLogger({ level: 'info', format: 'json', output, clock, secrets: () => [], ...options });
  return { logger, lines };
}

test('a line is one JSON object with level, time, fields and message', () => {
  const { logger, lines } = recorded();
  logger.child({ requestId: 'r1' }).warn({ address: '::1', count: 2 }, 'too many wrong credentials');
  assert.deepEqual(JSON.parse(lines[0] ?? ''), {
    level: 'warn',
    time: '2030-01-02T03:04:05.678Z',
    requestId: 'r1',
    address: '::1',
    count: 2,
    msg: 'too many wrong credentials',
  });
});

test('lines below the level are not written, and silent writes none', () => {
  const { logger, lines } = recorded({ level: 'warn' });
  logger.debug({}, 'a');
  logger.info({}, 'b');
  logger.warn({}, 'c');
  logger.error({}, 'd');
  const levels = lines.map((line) => JSON.parse(line).level);
  assert.deepEqual(levels, ['warn', 'error']);
  const silent = recorded({ level: 'silent' });
  silent.logger.error({}, 'e');
  assert.deepEqual(silent.lines, []);
});

test('an error is logged with its code, details, frames and causes', () => {
  const { logger, lines } = recorded();
  const cause = new TypeError('inner');
  logger.error({ error: new AppError('STORAGE_FULL', { file: 'x.db' }, { cause }) }, 'write failed');
  const { error } = JSON.parse(lines[0] ?? '');
  assert.equal(error.code, 'STORAGE_FULL');
  assert.deepEqual(error.details, { file: 'x.db' });
  assert.match(error.stack, /^ {4}at .*logger\.test\.ts/);
  assert.equal(error.cause.type, 'TypeError');
  assert.equal(error.cause.message, 'inner');
});

test('a logged text cannot start a line of its own or reach the terminal as a command', () => {
  const nasty = 'a\n{"level":"error"}\r\u001b[2J\u009b31m\u2028\u202e\u0000\u007f';
  for (const format of ['json', 'pretty'] as const) {
    const { logger, lines } = recorded({ format });
    logger.info({ [nasty]: nasty, list: [nasty] }, nasty);
    assert.equal(lines.length, 1);
    assert.doesNotMatch((lines[0] ?? '').slice(0, -1), /[\p{Cc}\u2028\u202e]/u);
  }
});

test('a field cannot pass itself off as the level, the time or the message', () => {
  const { logger, lines } = recorded();
  logger.child({ level: 'debug' }).error({ time: 'never', msg: 'fake' }, 'real');
  const text = lines[0] ?? '';
  for (const name of ['level', 'time', 'msg']) assert.equal(text.split(`"${name}":`).length, 2, text);
  assert.equal(JSON.parse(text).level, 'error');
  assert.equal(JSON.parse(text).msg, 'real');
});

test('whatever is logged, nothing is thrown and one line of valid JSON comes out', () => {
  const { logger, lines } = recorded();
  fc.assert(
    fc.property(fc.anything({ withBigInt: true, withNullPrototype: true, withSparseArray: true }), (value) => {
      lines.length = 0;
      logger.info({ value, more: [value] }, String(typeof value));
      assert.equal(lines.length, 1);
      JSON.parse(lines[0] ?? '');
    }),
  );
});

test('objects that are circular, hostile or broken are logged as far as they can be', () => {
  const circular: Record<string, unknown> = { name: 'loop' };
  circular.self = circular;
  const fail = () => {
    throw new Error('no');
  };
  const hostile = {
    get broken() {
      return fail();
    },
    toJSON: undefined,
    hasOwnProperty: 'mine',
  };
  const unreadable = new Proxy({}, { ownKeys: fail });
  const endless = { toJSON: () => ({ ...endless }) };
  const polluting = JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}');
  const { logger, lines } = recorded();
  logger.info({ circular, hostile, unreadable, endless, polluting, big: 10n, when: new Date(Number.NaN) }, 'm');
  logger.child(hostile).info(hostile, 'm');
  const line = JSON.parse(lines[0] ?? '');
  assert.deepEqual(line.circular, { name: 'loop', self: '[circular]' });
  assert.equal(line.hostile.broken, '[unreadable]');
  assert.equal(line.unreadable, '[unreadable]');
  assert.equal(line.big, '10');
  assert.equal(Object.hasOwn(Object.prototype, 'polluted'), false);
  assert.equal(lines.length, 2);
});

test('a huge object costs no more than a small line', () => {
  const { logger, lines } = recorded({ secrets: () => ['some-secret'] });
  const text = 'x'.repeat(10_000_000);
  const list = Array.from({ length: 300_000 }, (_, index) => ({ index, text: 'some text' }));
  let deep: unknown = 'end';
  for (let level = 0; level < 100_000; level += 1) deep = { deep };
  const wide = Array.from({ length: 100 }, () => Array.from({ length: 100 }, () => ({ text: text.slice(0, 5000) })));
  logger.info({ text, list, deep, wide, error: new Error(text) }, text);
  const size = (lines[0] ?? '').length;
  assert.ok(size < 200_000, `${size} characters`);
  assert.match(lines[0] ?? '', /\(10000000 characters\)/);
});

test('the format for people is one line, with the frames of an error below it', () => {
  const { logger, lines } = recorded({ format: 'pretty' });
  logger.info({ address: '::1', name: 'two words' }, 'ready');
  assert.equal(lines[0], '03:04:05.678 INFO  ready address=::1 name="two words"\n');
  logger.error({ error: new Error('broken') }, 'failed');
  assert.match(lines[1] ?? '', /^03:04:05\.678 ERROR failed error=\{"type":"Error","message":"broken"\}\n {4}at /);
});

async function outputOf(script: string): Promise<{ stdout: string; stderr: string }> {
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', script], { cwd: process.cwd() });
  const collected = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => {
    collected.stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    collected.stderr += chunk;
  });
  await new Promise((resolve) => child.on('close', resolve));
  return collected;
}

const PREPARE = `
  import { systemClock as clock } from './src/platform/clock/clock.ts';
  import { createBufferedOutput } from './src/platform/log/log-output.ts';
  import { createLogger } from './src/platform/log/logger.ts';
  const logger = createLogger({ level: 'info', format: 'json', output: createBufferedOutput({ clock }), clock, secrets: () => [] });
  for (let n = 1; n <= 5000; n += 1) logger.info({ n }, 'line');
`;

for (const [name, ending] of [
  ['ends by itself', ''],
  ['is told to exit', 'process.exit(0);'],
  ['dies of an uncaught error', 'throw new Error("uncaught");'],
  ['kills itself after a flush', 'logger.flush(); process.kill(process.pid, "SIGKILL"); await new Promise(() => {});'],
] as const) {
  test(`every buffered line reaches standard error, in order, when the process ${name}`, async () => {
    const { stdout, stderr } = await outputOf(PREPARE + ending);
    assert.equal(stdout, '');
    const numbers = stderr.split('\n').flatMap((line) => (line.startsWith('{"level"') ? [JSON.parse(line).n] : []));
    const expected = Array.from({ length: 5000 }, (_, index) => index + 1);
    assert.deepEqual(numbers, expected);
  });
}

test('a line is out within moments though the buffer is far from full', async () => {
  const wait = 'await new Promise((resolve) => setTimeout(resolve, 1500)); process.kill(process.pid, "SIGKILL");';
  const { stderr } = await outputOf(`${PREPARE.replace('5000', '3')}${wait}`);
  assert.equal(stderr.trim().split('\n').length, 3);
});
