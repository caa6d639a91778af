import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../kit/properties.ts';
import { browserModule, type StreamEvent } from './browser-modules.ts';

const { createEventParser } = await browserModule('response-view');

/** The events of a text that comes in pieces which end at the given offsets of its bytes. */
function eventsOf(text: string, cuts: readonly number[] = []): StreamEvent[] {
  const bytes = new TextEncoder().encode(text);
  const events: StreamEvent[] = [];
  const parser = createEventParser((event) => events.push(event));
  const ends = [...cuts.filter((cut) => cut < bytes.length).toSorted((a, b) => a - b), bytes.length];
  let start = 0;
  for (const end of ends) {
    parser.push(bytes.subarray(start, end));
    start = end;
  }
  return events;
}

const dataOf = (text: string) => eventsOf(text).map(({ data }) => data);

test('P-04: lines end with LF, CRLF or CR', () => {
  for (const end of ['\n', '\r\n', '\r']) {
    assert.deepEqual(dataOf(`data: a${end}${end}data: b${end}${end}`), ['a', 'b'], JSON.stringify(end));
  }
  assert.deepEqual(dataOf('data: a\r\ndata: b\rdata: c\n\r\n'), ['a\nb\nc']);
});

test('P-04: several data lines are one event with line breaks', () => {
  assert.deepEqual(dataOf('data: one\ndata:\ndata: three\n\n'), ['one\n\nthree']);
});

test('P-04: comments, retry and unknown fields add nothing', () => {
  assert.deepEqual(dataOf(': ping\n\nretry: 10\nother: x\ndata: a\n: in between\n\n:\n\n'), ['a']);
});

test('P-04: a byte order mark at the start is skipped, also when it is cut', () => {
  const text = '\uFEFFdata: a\n\n';
  for (const cut of [0, 1, 2, 3, 4]) assert.equal(eventsOf(text, [cut])[0]?.data, 'a');
  assert.deepEqual(dataOf('data: \uFEFFa\n\n'), ['\uFEFFa']);
});

test('P-04: event names one event, id stays until it changes', () => {
  assert.deepEqual(eventsOf('event: add\nid: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n'), [
    { event: 'add', id: '7', data: 'a' },
    { event: 'message', id: '7', data: 'b' },
    { event: 'message', id: '', data: 'c' },
  ]);
  assert.equal(eventsOf('id: 1\ndata: a\nid: 2\0\n\n')[0]?.id, '1');
});

test('P-04: one space after the colon is dropped, no more', () => {
  assert.deepEqual(dataOf('data:a\n\ndata: a\n\ndata:  a \n\ndata: a: b\n\n'), ['a', 'a', ' a ', 'a: b']);
});

test('P-04: an event without data is none, one with empty data is one', () => {
  assert.deepEqual(eventsOf('event: add\n\ndata: a\n\n'), [{ event: 'message', id: '', data: 'a' }]);
  assert.deepEqual(dataOf('data\n\ndata:\n\n'), ['', '']);
});

test('P-04: what the stream breaks off is not an event', () => {
  assert.deepEqual(dataOf('data: a\n\ndata: b\n'), ['a']);
});

test('P-04: however the bytes are cut, the events are the same', () => {
  const line = fc.oneof(
    fc.constantFrom('', 'data', 'data: a', 'data:é😀', ': comment', 'event: add', 'id: 1', 'id', 'retry: 1', '\uFEFF'),
    fc.string({ unit: 'grapheme', maxLength: 6 }).map((text) => `data: ${text.replaceAll(/[\r\n]/g, '')}`),
  );
  const end = fc.constantFrom('\n', '\r\n', '\r');
  const text = fc.array(fc.tuple(line, end), { maxLength: 12 }).map((lines) => lines.flat().join(''));
  fc.assert(
    fc.property(text, fc.array(fc.nat(80), { maxLength: 8 }), (whole, cuts) => {
      assert.deepEqual(eventsOf(whole, cuts), eventsOf(whole));
    }),
    { numRuns: 500, seed: 4 },
  );
});

test('P-04: byte for byte it is the same as in one piece', () => {
  const text = '\uFEFFid: 1\r\ndata: é😀\r\n\r\nevent: x\rdata: b\r\rdata: c\n\n';
  assert.deepEqual(
    eventsOf(
      text,
      Array.from({ length: 80 }, (_, index) => index),
    ),
    [
      { event: 'message', id: '1', data: 'é😀' },
      { event: 'x', id: '1', data: 'b' },
      { event: 'message', id: '1', data: 'c' },
    ],
  );
});

test('an event without end is given up, as one line and as many', () => {
  for (const piece of ['x'.repeat(1024 * 1024), `data: ${'x'.repeat(1024)}\n`.repeat(1024)]) {
    const parser = createEventParser(() => assert.fail('there is no event'));
    const bytes = new TextEncoder().encode(piece);
    assert.throws(() => {
      for (let round = 0; round < 8; round += 1) parser.push(bytes);
    }, /too large/);
  }
});
