import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COMMON_PASSWORD_WORDS } from '../../src/accounts/passwords/common-password-words.ts';
import { createPasswordHasher, isCommonPassword } from '../../src/accounts/passwords/passwords.ts';

const quick = { parameters: { memoryCost: 1024, timeCost: 1, parallelism: 1 }, concurrency: 1 };

test('a password is hashed with argon2id as the contract asks for, and matches itself alone', async () => {
  const hasher = createPasswordHasher({ concurrency: 2 });
  const hash = await hasher.hash('copper kettle');
  assert.match(hash, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  assert.equal(await hasher.verify(hash, 'copper kettle'), true);
  assert.equal(await hasher.verify(hash, 'copper kettl'), false);
  assert.equal(hasher.isOutdated(hash), false);
  assert.equal(createPasswordHasher(quick).isOutdated(hash), true);
});

test('for nobody the same is computed, and the answer is no, whatever the password', async () => {
  const hasher = createPasswordHasher(quick);
  assert.equal(await hasher.verify(null, 'anything'), false);
  assert.equal(await hasher.verify(null, ''), false);
});

test('only so many are computed at the same time, so many more wait, and one more is refused', async () => {
  const hasher = createPasswordHasher({ ...quick, concurrency: 2, waiting: 3 });
  const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => hasher.hash('x')));
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
  assert.equal(refused.length, 3);
  for (const { reason } of refused) assert.equal(reason.code, 'OVERLOADED');
  assert.match(await hasher.hash('afterwards'), /^\$argon2id/);
});

test('A-10: the list of common passwords has 3,000 entries and more, all refused where they are long enough', () => {
  const words = COMMON_PASSWORD_WORDS.trim().split(/\s+/);
  assert.ok(new Set(words).size >= 3000);
  for (const word of words) {
    assert.equal(word, word.toLowerCase());
    assert.ok(isCommonPassword(word) && isCommonPassword(word.toUpperCase()), word);
    if (/^[a-z]+$/.test(word)) assert.ok(isCommonPassword(`${word}1234!`) && isCommonPassword(`2024${word}`), word);
  }
  for (const fine of ['correct horse battery staple', 'xk7#mPq2vL', 'a'.repeat(64), ' '.repeat(9)]) {
    assert.equal(isCommonPassword(fine), false, fine);
  }
});
