import assert from 'node:assert/strict';
import { test } from 'node:test';
import { joinChunks } from '../../../src/completions/relay/open-stream.ts';

test('chunks of one reading are joined where they are', () => {
  const read = Buffer.from('3\r\nabc\r\n2\r\nde\r\n1\r\nf\r\n');
  const joined = joinChunks([read.subarray(3, 6), read.subarray(11, 13), read.subarray(18, 19)]);
  assert.equal(joined.toString(), 'abcdef');
  assert.equal(joined.buffer, read.buffer);
});

test('chunks of several readings, or out of order, are copied and stay as they are', () => {
  const one = Buffer.from('one two');
  const other = Buffer.from(new ArrayBuffer(4)).fill('more');
  assert.equal(joinChunks([one.subarray(0, 3), other]).toString(), 'onemore');
  assert.equal(joinChunks([one.subarray(4), one.subarray(0, 3)]).toString(), 'twoone');
  assert.equal(one.toString(), 'one two');
  assert.equal(joinChunks([other]), other);
});
