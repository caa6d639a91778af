import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { LookupFunction } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Pool } from 'undici';
import { createUpstreamPools } from '../../../src/completions/upstream/upstream-pools.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';

const CONNECT_MS = 10_000;
const LOOPBACK = '127.0.0.1';
const METADATA = '169.254.169.254';

/** Names that lead to these addresses, whether one is asked for or all. */
function leadingTo(...addresses: readonly string[]): LookupFunction {
  return (_host, { all }, callback) => {
    const found = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    if (all === true) callback(null, found);
    else callback(null, found[0]?.address ?? '', found[0]?.family ?? 4);
  };
}

/** What an upstream with this name answers, on a port where one listens. */
async function answerOf(context: TestContext, lookUp: LookupFunction, host = 'models.example'): Promise<string> {
  const server = await listenOnLoopback(createServer((_request, response) => response.end('the model answers')));
  context.after(() => server.close());
  const pools = createUpstreamPools(lookUp);
  context.after(() => pools.close());
  // Without a proxy it is a whole pool, of which calls need only a part.
  const pool = (await pools.open(`http://${host}:${new URL(server.url).port}`, CONNECT_MS)) as Pool;
  const { body } = await pool.request({ path: '/', method: 'GET' });
  return body.text();
}

const refused = {
  code: 'UPSTREAM_ERROR',
  details: { reason: 'its address is one where a cloud hands out credentials' },
};

test('a name that leads to an upstream is called at the address that was looked up', async (context) => {
  assert.equal(await answerOf(context, leadingTo(LOOPBACK)), 'the model answers');
});

test('a name that leads to where a cloud keeps credentials is not called, even where it also leads elsewhere', async (context) => {
  for (const addresses of [[METADATA], [LOOPBACK, METADATA], ['fd00:ec2::254'], ['::ffff:a9fe:a9fe']]) {
    await assert.rejects(answerOf(context, leadingTo(...addresses)), refused, addresses.join());
  }
});

test('a name that cannot be looked up fails as such', async (context) => {
  const unknown: LookupFunction = (host, _options, callback) =>
    callback(Object.assign(new Error(`no such name: ${host}`), { code: 'ENOTFOUND' }), '', 0);
  await assert.rejects(answerOf(context, unknown), { code: 'ENOTFOUND' });
});

test('an address where a cloud keeps credentials is refused as it stands, in every spelling', async (context) => {
  const pools = createUpstreamPools(leadingTo(LOOPBACK));
  context.after(() => pools.close());
  const hosts = [
    METADATA,
    '2852039166',
    '0xa9fea9fe',
    '[::ffff:a9fe:a9fe]',
    '[fd00:ec2::254]',
    'Metadata.Google.Internal.',
  ];
  for (const host of hosts) {
    await assert.rejects(async () => pools.open(`http://${host}`, CONNECT_MS), refused, host);
  }
});

test('after the end no connection is opened any more', async () => {
  const pools = createUpstreamPools(leadingTo(LOOPBACK));
  await pools.open('http://models.example', CONNECT_MS);
  await pools.close();
  await assert.rejects(async () => pools.open('http://models.example', CONNECT_MS), {
    details: { reason: 'the server is shutting down' },
  });
});
