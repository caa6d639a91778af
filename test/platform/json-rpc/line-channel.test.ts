import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { plainEnvelope } from '../../../src/platform/json-rpc/envelope.ts';
import { createLineChannel } from '../../../src/platform/json-rpc/message-channel.ts';
import { createPeer } from '../../../src/platform/json-rpc/peer.ts';
import { call, serving } from './carriers.ts';
import { createStuckWritable, openLineChannel } from './line-streams.ts';

describe('what is sent', () => {
  test('goes out as lines, with line breaks between tokens made spaces', async () => {
    const line = openLineChannel();
    line.channel.send('{"a":1}');
    line.channel.send('{\n"text":"x\\ny"\n}');
    await line.settle();
    assert.equal(line.written(), '{"a":1}\n{ "text":"x\\ny" }\n');
  });

  test('takes the framing of the last message that came', async () => {
    const line = openLineChannel();
    line.input.write('Content-Length: 2\r\n\r\n{}');
    await line.settle();
    line.channel.send('{"text":"ü"}');
    line.input.write('{}\n');
    await line.settle();
    line.channel.send('{}');
    await line.settle();
    assert.equal(line.written(), 'Content-Length: 13\r\n\r\n{"text":"ü"}{}\n');
  });

  test('ends the channel with 1013 when much waits and the other side takes nothing of it for too long', async () => {
    const line = openLineChannel({ writable: createStuckWritable(), maxBufferedBytes: 10_000, stalledAfterMs: 500 });
    for (let sent = 0; sent < 9; sent += 1) line.channel.send('x'.repeat(1000));
    assert.equal(line.timers.count(), 0);
    for (let sent = 0; sent < 100; sent += 1) line.channel.send('x'.repeat(1000));
    assert.deepEqual([line.ends, line.timers.count()], [[], 1]);
    line.timers.advance(500);
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1013],
    );
    await line.settle();
    assert.equal(line.input.destroyed, true);
  });

  test('DB-25: is behind with more than 1 MiB waiting, until the other side has taken it', async () => {
    const line = openLineChannel();
    line.channel.send('x'.repeat(1024 * 1024));
    assert.equal(line.channel.isBehind(), true);
    const drained = line.channel.drained();
    line.output.resume();
    await drained;
    assert.equal(line.channel.isBehind(), false);
    await line.channel.drained();
  });

  test('DB-28: nothing is read while the channel is held back', async () => {
    const line = openLineChannel();
    const [one, two] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    line.channel.holdBack(one.promise);
    line.channel.holdBack(two.promise);
    line.input.write('{"a":1}\n');
    await line.settle();
    one.resolve();
    await line.settle();
    assert.deepEqual(line.messages, []);
    two.resolve();
    await line.settle();
    assert.deepEqual(line.messages, ['{"a":1}']);
  });

  test('goes nowhere after the end', async () => {
    const line = openLineChannel();
    line.channel.close();
    line.channel.send('{}');
    await line.settle();
    assert.equal(line.written(), '');
  });
});

describe('the end of a line channel', () => {
  test('comes with the end of input, after the last line even without its line break', async () => {
    const line = openLineChannel();
    line.input.end('{"a":1}\n{"b":2}');
    await line.settle();
    assert.deepEqual(line.messages, ['{"a":1}', '{"b":2}']);
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1000],
    );
    assert.equal(line.output.writableEnded, true);
  });

  test('aborts running calls and rejects pending requests', async () => {
    const line = openLineChannel();
    let aborted: unknown;
    const options = serving(({ signal }) => {
      signal.addEventListener('abort', () => {
        aborted = signal.reason;
      });
      return new Promise(() => undefined);
    });
    const peer = createPeer({ ...options, channel: line.channel });
    const request = peer.request('a');
    line.input.end(`${JSON.stringify(call(1, 'wait'))}\n`);
    await assert.rejects(request, (error) => error instanceof AppError && error.code === 'CONNECTION_CLOSED');
    assert.ok(aborted instanceof AppError && aborted.code === 'CONNECTION_CLOSED');
    assert.equal((await peer.closed).code, 1000);
  });

  test('is reported once, with the code it was closed with, also to a listener that comes late', async () => {
    const line = openLineChannel();
    line.channel.send('{"last":1}');
    line.channel.close(1008, 'no more');
    line.channel.close(1000);
    line.input.write('{}\n');
    await line.settle();
    assert.deepEqual(line.ends, [{ code: 1008, reason: 'no more' }]);
    assert.deepEqual(line.messages, []);
    assert.equal(line.written(), '{"last":1}\n');
    line.channel.onEnd((end) => line.ends.push(end));
    assert.equal(line.ends.length, 2);
  });

  test('comes with an input that breaks or is destroyed', async () => {
    for (const error of [new Error('broken'), undefined]) {
      const line = openLineChannel();
      line.input.destroy(error);
      await line.settle();
      assert.deepEqual(
        line.ends.map(({ code }) => code),
        [1006],
      );
      assert.equal(line.output.destroyed, true);
    }
  });

  test('comes a second after the output broke, so that last words are still read', async () => {
    const line = openLineChannel();
    line.output.destroy(new Error('EPIPE'));
    await line.settle();
    line.input.write('{"last":"words"}\n');
    await line.settle();
    line.channel.send('{}');
    line.timers.advance(999);
    assert.deepEqual(line.messages, ['{"last":"words"}']);
    assert.deepEqual(line.ends, []);
    line.timers.advance(1);
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1006],
    );
  });

  test('stops the wait for last words when the input ends first', async () => {
    const line = openLineChannel();
    line.output.destroy();
    await line.settle();
    assert.equal(line.timers.count(), 1);
    line.input.end();
    await line.settle();
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1000],
    );
    assert.equal(line.timers.count(), 0);
  });
});

test('messages that came before anyone listened are kept', async () => {
  const input = new PassThrough();
  const channel = createLineChannel({ readable: input, writable: new PassThrough(), maxLineBytes: 100 });
  input.write('{"a":1}\n');
  const messages: string[] = [];
  await new Promise((resolve) => setImmediate(resolve));
  channel.onMessage((text) => messages.push(text));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(messages, ['{"a":1}']);
  channel.close();
});

test('two peers talk over one socket in both directions, and a close reaches the other side', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const near = connect(port, '127.0.0.1');
  const [far] = await accepted;
  server.close();
  const open = (socket: Socket) => createLineChannel({ readable: socket, writable: socket, maxLineBytes: 1_000_000 });
  const left = createPeer({ ...serving(), envelope: plainEnvelope, channel: open(near) });
  const right = createPeer({ ...serving(), envelope: plainEnvelope, channel: open(far) });
  const text = 'ü'.repeat(100_000);
  assert.deepEqual(await left.request('echo', { text }), { text });
  assert.deepEqual(await right.request('later', { text }), { text });
  left.close();
  assert.equal((await right.closed).code, 1000);
  await once(server, 'close');
});

test('B-60: a child that prints noise, also to its standard error, and splits characters is understood', async () => {
  const program = `
    const answer = Buffer.from('{"jsonrpc":"2.0","id":1,"result":{"text":"größer"}}\\n');
    const cut = answer.indexOf(0xc3) + 1;
    process.stdin.once('data', () => {
      process.stdout.write('Debugger attached.\\n[warn: not JSON\\n\\n');
      process.stderr.write('{"jsonrpc":"2.0","id":1,"result":"wrong"}\\n');
      process.stdout.write(answer.subarray(0, cut), () => setTimeout(() => process.stdout.write(answer.subarray(cut)), 20));
    });`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['pipe', 'pipe', 'ignore'] });
  const noise: string[] = [];
  const channel = createLineChannel({
    readable: child.stdout,
    writable: child.stdin,
    maxLineBytes: 1000,
    onNoise: (line) => noise.push(line),
  });
  const peer = createPeer({ channel, envelope: plainEnvelope, clock: systemClock });
  const exited = once(child, 'exit');
  assert.deepEqual(await peer.request('a', {}, { timeoutMs: 10_000 }), { text: 'größer' });
  assert.deepEqual(noise, ['Debugger attached.']);
  peer.close();
  child.kill();
  await exited;
});
