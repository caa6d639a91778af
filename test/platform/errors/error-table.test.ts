import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError, type ErrorCode, errorCode } from '../../../src/platform/errors/app-error.ts';
import {
  describeError,
  type ErrorRow,
  type ErrorTable,
  isExpected,
  platformErrors,
} from '../../../src/platform/errors/error-table.ts';
import fc from '../../kit/properties.ts';

/** With codes of this test's own table, too. */
const appError = (code: string, details = {}) => new AppError(code as ErrorCode, details);

const table: ErrorTable = {
  ...platformErrors,
  TOO_LONG: { status: 400, rpc: -32602, message: '{field} is longer than {limit}, {field}!' },
  PLAIN: { status: 418, message: 'no number' },
};

test('an error with a row is described by it, its details filled into the message', () => {
  const details = { field: 'name', limit: 10 };
  assert.deepEqual(describeError(table, appError('TOO_LONG', details)), {
    code: 'TOO_LONG',
    status: 400,
    rpc: -32602,
    message: 'name is longer than 10, name!',
    details,
  });
  assert.equal(describeError(table, appError('PLAIN')).rpc, -32603);
});

test('a detail that is missing stays visible as a gap, and details cannot reach the prototype', () => {
  const { message } = describeError(table, appError('TOO_LONG', { limit: 1 }));
  assert.equal(message, '{field} is longer than 1, {field}!');
  const odd = { ODD: { status: 400, message: '{constructor} {toString} {__proto__}' } };
  assert.equal(describeError(odd, appError('ODD')).message, '{constructor} {toString} {__proto__}');
});

test('text that came in a detail is not filled in a second time', () => {
  const error = appError('TOO_LONG', { field: '{limit}', limit: '{field}' });
  assert.equal(describeError(table, error).message, '{limit} is longer than {field}, {limit}!');
});

test('O-01: whatever else is thrown tells the caller nothing', () => {
  const thrown = fc.oneof(
    fc.string().map((message) => new Error(`zq ${message}`)),
    fc.string().map((code) => Object.assign(new Error('zq'), { code, details: { zq: 1 } })),
    fc.string().map((code) => appError(`zq${code}`, { zq: 'secret' })),
    fc.constantFrom('toString', 'constructor', '__proto__', 'hasOwnProperty').map((code) => appError(code)),
    fc.anything(),
  );
  fc.assert(
    fc.property(thrown, (error) => {
      assert.deepEqual(describeError(table, error), {
        code: 'INTERNAL_ERROR',
        status: 500,
        rpc: -32603,
        message: platformErrors.INTERNAL_ERROR.message,
        details: {},
      });
      assert.equal(isExpected(table, error), false);
    }),
  );
  assert.equal(describeError({}, new Error('zq')).message, 'Something went wrong on our side.');
});

test('an error with a row is expected, an internal one is not', () => {
  assert.equal(isExpected(table, appError('TOO_LONG')), true);
  assert.equal(isExpected(table, new AppError('INTERNAL_ERROR')), false);
});

test('every row of the platform has a status, a message and no number outside the range of JSON-RPC', () => {
  for (const [code, row] of Object.entries<ErrorRow>(platformErrors)) {
    assert.match(code, /^[A-Z][A-Z_]*[A-Z]$/);
    assert.ok(row.status >= 400 && row.status < 600, code);
    assert.ok(row.rpc === undefined || (row.rpc <= -32000 && row.rpc >= -32768), code);
    assert.match(row.message, /^\S.*\S$/, code);
  }
});

test('the code of an error is read from system errors and from ours, and is empty for anything else', () => {
  assert.equal(errorCode(Object.assign(new Error('x'), { code: 'ENOENT' })), 'ENOENT');
  assert.equal(errorCode(appError('TOO_LONG')), 'TOO_LONG');
  for (const value of [undefined, null, 'ENOENT', 5, {}, { code: 5 }, new Error('x')]) {
    assert.equal(errorCode(value), '');
  }
});
