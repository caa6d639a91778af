import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { describe, test } from 'node:test';
import fc from '../../kit/properties.ts';
import { openLineChannel } from './line-streams.ts';

describe('messages on lines', () => {
  test('come one by one; blank lines and carriage returns are skipped', async () => {
    const line = openLineChannel();
    line.input.write('{"a":1}\r\n\n \t\r\n{"b":2}\n{"c"');
    await line.settle();
    assert.deepEqual(line.messages, ['{"a":1}', '{"b":2}']);
    line.input.write(':3}\n');
    await line.settle();
    assert.deepEqual(line.messages.slice(2), ['{"c":3}']);
  });

  test('without a taker for noise, anything else is a message too', async () => {
    const line = openLineChannel();
    line.input.write('hello\n7\n');
    await line.settle();
    assert.deepEqual(line.messages, ['hello', '7']);
  });

  test('may be exactly as long as allowed; one byte more ends the channel with 1009', async () => {
    for (const [length, ends] of [
      [1000, []],
      [1001, [1009]],
    ] as const) {
      const line = openLineChannel();
      line.input.write(`${'x'.repeat(length)}\n`);
      await line.settle();
      assert.deepEqual(line.messages.length, 1 - ends.length);
      assert.deepEqual(
        line.ends.map(({ code }) => code),
        ends,
      );
    }
  });

  test('a line that never ends is given up when it is too long, not kept', async () => {
    const line = openLineChannel();
    for (let sent = 0; sent < 11; sent += 1) line.input.write('x'.repeat(100));
    await line.settle();
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1009],
    );
    assert.equal(line.input.destroyed, true);
  });
});

describe('messages behind a Content-Length', () => {
  test('are counted in bytes and may contain line breaks', async () => {
    const line = openLineChannel();
    const body = '{"text":"ü",\n"b":1}';
    line.input.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}content-type: application/json\r\n`);
    line.input.write(`CONTENT-LENGTH:  ${Buffer.byteLength(body)} \r\nX-Other: 1\r\n\r\n${body}{"line":1}\n`);
    await line.settle();
    assert.deepEqual(line.messages, [body, body, '{"line":1}']);
  });

  test('of length 0 are no message', async () => {
    const line = openLineChannel();
    line.input.write('Content-Length: 0\r\n\r\n{}\n');
    await line.settle();
    assert.deepEqual(line.messages, ['{}']);
  });

  test('longer than allowed end the channel before their bytes come', async () => {
    for (const length of ['1001', '999999999999999']) {
      const line = openLineChannel();
      line.input.write(`Content-Length: ${length}\r\n\r\n`);
      await line.settle();
      assert.deepEqual(
        line.ends.map(({ code }) => code),
        [1009],
      );
    }
    const fits = openLineChannel();
    fits.input.write(`Content-Length: 1000\r\n\r\n${'x'.repeat(1000)}`);
    await fits.settle();
    assert.equal(fits.messages.length, 1);
  });

  test('that are cut off by the end of input are dropped', async () => {
    const line = openLineChannel();
    line.input.end('Content-Length: 10\r\n\r\n{"a"');
    await line.settle();
    assert.deepEqual(line.messages, []);
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1000],
    );
  });

  test('B-60: text that only looks like a header does not swallow the message after it', async () => {
    const line = openLineChannel({ onNoise: () => undefined });
    const headers = Array.from({ length: 40 }, (_, index) => `X-Header-${index}: 1\r\n`).join('');
    line.input.write(
      `Content-Type: text/html\r\n${headers}{"a":1}\nContent-Length: many\n{"b":2}\nContent-Length\n{"c":3}\n`,
    );
    await line.settle();
    assert.deepEqual(line.messages, ['{"a":1}', '{"b":2}', '{"c":3}']);
    assert.deepEqual(line.ends, []);
  });
});

describe('noise', () => {
  test('B-60: lines that do not start like a message go to the taker of noise, the session goes on', async () => {
    const noise: string[] = [];
    const line = openLineChannel({ onNoise: (text) => noise.push(text) });
    line.input.write('Starting...\n  {"a":1}\n42 is it\n[{"b":2}]\n\ufeff{"c":3}\n"text"\n');
    await line.settle();
    assert.deepEqual(noise, ['Starting...', '42 is it', '"text"']);
    assert.deepEqual(line.messages, ['  {"a":1}', '[{"b":2}]', '\ufeff{"c":3}']);
  });

  test('B-60: bytes that are not UTF-8 are replaced where noise is expected', async () => {
    const noise: string[] = [];
    const line = openLineChannel({ onNoise: (text) => noise.push(text) });
    line.input.write(
      Buffer.concat([
        Buffer.from('x'),
        Buffer.from([0xff, 0x0a]),
        Buffer.from('{"a":"'),
        Buffer.from([0xff]),
        Buffer.from('"}\n{}\n'),
      ]),
    );
    await line.settle();
    assert.deepEqual(noise, ['x\ufffd']);
    assert.deepEqual(line.messages, ['{"a":"\ufffd"}', '{}']);
    assert.deepEqual(line.ends, []);
  });

  test('B-17: elsewhere they end the channel with 1007, and what follows is not read', async () => {
    const line = openLineChannel();
    line.input.write(Buffer.concat([Buffer.from('{"a":1}\n"'), Buffer.from([0xff]), Buffer.from('"\n{"b":2}\n')]));
    await line.settle();
    assert.deepEqual(line.messages, ['{"a":1}']);
    assert.deepEqual(
      line.ends.map(({ code }) => code),
      [1007],
    );
  });
});

test('B-60: however the bytes are split, the same messages come out', async () => {
  const message = fc.record({
    text: fc.array(fc.constantFrom('a', '"', '\n', 'ü', '€', '𝄞', '{'), { maxLength: 12 }),
    counted: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(message, { minLength: 1, maxLength: 6 }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 20 }),
      async (sent, cuts) => {
        const texts = sent.map(({ text }) => JSON.stringify({ text: text.join('') }));
        const bytes = Buffer.concat(
          texts.map((text, index) => {
            const header = `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n`;
            return Buffer.from(sent[index]?.counted ? header + text : `${text}\n`);
          }),
        );
        const line = openLineChannel();
        let at = 0;
        for (let cut = 0; at < bytes.length; cut += 1) {
          const next = at + (cuts[cut % cuts.length] ?? 1);
          line.input.write(bytes.subarray(at, next));
          at = next;
        }
        line.input.end();
        await line.settle();
        for (let round = 0; round < 100 && line.ends.length === 0; round += 1) await line.settle();
        assert.deepEqual(line.messages, texts);
      },
    ),
    { numRuns: 60 },
  );
});
