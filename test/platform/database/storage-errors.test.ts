import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describePostgresError } from '../../../src/platform/database/postgres/postgres-engine.ts';
import { fromFailure, toFailure } from '../../../src/platform/database/sqlite/sqlite-connection.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';

const SQLITE: readonly (readonly [resultCode: number, code: string])[] = [
  [2067, 'STORAGE_DUPLICATE'],
  [1555, 'STORAGE_DUPLICATE'],
  [13, 'STORAGE_FULL'],
  [4874, 'STORAGE_FULL'],
  [5, 'STORAGE_UNAVAILABLE'],
  [517, 'STORAGE_UNAVAILABLE'],
  [778, 'STORAGE_UNAVAILABLE'],
  [1034, 'STORAGE_UNAVAILABLE'],
  [11, 'STORAGE_UNAVAILABLE'],
  [787, ''],
  [1, ''],
];

test('each result code of SQLite becomes the error that says what to do', () => {
  for (const [resultCode, code] of SQLITE) {
    const error = Object.assign(new Error('from SQLite'), { errcode: resultCode });
    assert.equal(errorCode(fromFailure(toFailure(error))), code, `${resultCode}`);
  }
});

const POSTGRES: readonly (readonly [sqlState: string, code: string, connectionLost: boolean, tryAgain: boolean])[] = [
  ['23505', 'STORAGE_DUPLICATE', false, false],
  ['40001', 'STORAGE_CONFLICT', false, true],
  ['40P01', 'STORAGE_CONFLICT', false, true],
  ['53100', 'STORAGE_FULL', false, false],
  ['53300', 'STORAGE_UNAVAILABLE', true, false],
  ['57P01', 'STORAGE_UNAVAILABLE', true, false],
  ['57P03', 'STORAGE_UNAVAILABLE', true, false],
  ['57014', 'STORAGE_UNAVAILABLE', false, false],
  ['25006', 'STORAGE_UNAVAILABLE', false, false],
  ['28P01', 'STORAGE_UNAVAILABLE', true, false],
  ['08006', 'STORAGE_UNAVAILABLE', true, false],
  ['42P01', '42P01', false, false],
];

test('each error code of PostgreSQL becomes the error that says what to do', () => {
  for (const [sqlState, code, connectionLost, tryAgain] of POSTGRES) {
    const cause = Object.assign(new Error('from PostgreSQL'), { code: sqlState, severity: 'ERROR' });
    const problem = describePostgresError(cause);
    assert.deepEqual(
      [errorCode(problem.error), problem.connectionLost, problem.tryAgain],
      [code, connectionLost, tryAgain],
    );
  }
});

test('a connection that breaks is told apart from what a server says', () => {
  for (const cause of [
    Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }),
    new Error('Connection terminated unexpectedly'),
    new Error('Query read timeout'),
  ]) {
    const { error, connectionLost } = describePostgresError(cause);
    assert.deepEqual([errorCode(error), connectionLost, error.cause], ['STORAGE_UNAVAILABLE', true, cause]);
  }
});

test('the values of a duplicate stay out of its details', () => {
  const cause = Object.assign(new Error('duplicate key'), {
    code: '23505',
    severity: 'ERROR',
    table: 'users',
    detail: 'Key (tenant, email)=(default, someone@example.org) already exists.',
  });
  const { error } = describePostgresError(cause);
  assert.deepEqual('details' in error && error.details, { table: 'users', columns: ['tenant', 'email'] });
});
