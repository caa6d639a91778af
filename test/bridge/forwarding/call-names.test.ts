import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCallNames, readJobNames } from '../../../src/bridge/forwarding/call-names.ts';

const session = (name: string) => ({ kind: 'session', name });

test('forwarding: a call tells what it is about', () => {
  const params = { sessionId: 's', threadId: 't', jobId: 'j', idempotencyKey: 'k' };
  const names = (method: string) => readCallNames(method, params);
  assert.deepEqual(names('session.start'), { names: [session('s')], threadId: 't', binds: 'before', makes: true });
  assert.deepEqual(names('session.message'), { names: [session('s')], threadId: 't', binds: 'after', makes: false });
  for (const method of ['session.cancel', 'session.close']) {
    assert.deepEqual(names(method), { names: [session('s')], threadId: 't', binds: 'never', makes: false });
  }
  const submit = { names: [session('s'), { kind: 'job-key', name: 'k' }], threadId: 't', binds: 'before', makes: true };
  assert.deepEqual(names('app.jobs.submit'), submit);
  assert.deepEqual(names('app.jobs.get').names, [{ kind: 'job', name: 'j' }]);
  assert.deepEqual(names('acp.capabilities').names, []);
  assert.deepEqual(readCallNames('session.cancel', { threadId: 't' }).names, []);
  const ofJob = [{ kind: 'job', name: 'j' }, session('s'), { kind: 'jobs', name: 'b' }];
  assert.deepEqual(readJobNames({ jobId: 'j', sessionId: 's' }, 'b'), ofJob);
});

for (const sessionId of [undefined, '', 7, null, {}, 'x'.repeat(257), 'a\0b', '\ud800']) {
  test(`forwarding: a session named ${JSON.stringify(sessionId)?.slice(0, 20)} is refused, not run anywhere`, () => {
    assert.throws(() => readCallNames('session.start', { sessionId }), { code: 'INVALID_PARAMS' });
  });
}

for (const params of [undefined, null, [], 'text', 3]) {
  test(`forwarding: parameters of ${JSON.stringify(params) ?? 'nothing'} name nothing`, () => {
    assert.throws(() => readCallNames('session.message', params), { code: 'INVALID_PARAMS' });
    assert.deepEqual(readCallNames('app.jobs.list', params).names, []);
  });
}
