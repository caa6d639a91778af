import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { packProof, unpackProofs } from '../../../src/completions/dialects/conversation.ts';

test('proofs come back as they were, whatever they hold, however many are joined', () => {
  const proof = fc.oneof(fc.base64String({ minLength: 4 }), fc.string({ minLength: 1 }));
  fc.assert(
    fc.property(fc.array(proof), (proofs) => {
      const packed = proofs.map((text, index) => packProof('claude', `t${index}@0`, text)).join('');
      const read = unpackProofs('claude', packed).map((found) => found.proof);
      assert.deepEqual(read, proofs);
      assert.deepEqual(unpackProofs('google', packed), []);
    }),
  );
});

test('a text that is not packed is one proof without a mark', () => {
  assert.deepEqual(unpackProofs('claude', 'ErUBCkYIBR=='), [{ mark: '', proof: 'ErUBCkYIBR==' }]);
  assert.deepEqual(unpackProofs('claude', ''), []);
});
