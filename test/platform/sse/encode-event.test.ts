import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeComment, encodeEvent } from '../../../src/platform/sse/sse-writer.ts';
import fc from '../../kit/properties.ts';
import { readEvents } from './read-events.ts';

test('an event is its id, its name and its data, then an empty line', () => {
  assert.equal(encodeEvent({ data: '{"a":1}' }), 'data: {"a":1}\n\n');
  assert.equal(encodeEvent({ data: 'x', id: '7', event: 'update' }), 'id: 7\nevent: update\ndata: x\n\n');
  assert.equal(encodeEvent({ data: '' }), 'data: \n\n');
  assert.equal(encodeComment('keep-alive'), ': keep-alive\n\n');
});

test('P-04: data with any kind of line break arrives as the same lines in one event', () => {
  assert.equal(encodeEvent({ data: 'a\r\nb\rc\nd' }), 'data: a\ndata: b\ndata: c\ndata: d\n\n');
  const text = fc.string({ unit: fc.constantFrom('a', ' ', ':', '\r', '\n', 'data: ', 'id: 9', 'ü', '\u2028') });
  fc.assert(
    fc.property(text, text, (data, comment) => {
      const stream = encodeComment(comment) + encodeEvent({ data, id: '1' }) + encodeEvent({ data: 'next' });
      const lines = data.replaceAll('\r\n', '\n').replaceAll('\r', '\n');
      assert.deepEqual(readEvents(stream), [
        { id: '1', data: lines },
        { id: '1', data: 'next' },
      ]);
    }),
  );
});

test('B-44: an id or a name with a line break cannot smuggle an event in', () => {
  for (const bad of ['a\nb', 'a\rb', 'a\r\ndata: x', '\n', 'a\0b']) {
    assert.throws(() => encodeEvent({ data: 'x', id: bad }), { code: 'INVALID_REQUEST' });
    assert.throws(() => encodeEvent({ data: 'x', event: bad }), { code: 'INVALID_REQUEST' });
  }
});
