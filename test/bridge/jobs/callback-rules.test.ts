import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type CallbackNetwork,
  type CallbackRulesOptions,
  createCallbackPost,
  createCallbackRules,
  systemCallbackNetwork,
} from '../../../src/platform/callbacks/callback-post.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { refusal, submitted } from '../../kit/bridge/job-client.ts';
import { bearer } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

const OWN_ADDRESS = '198.41.0.4';
const PUBLIC = '93.184.215.14';

/** Hosts that no caller of a guarded bridge may reach through a callback. */
const REFUSED_HOSTS = [
  '127.0.0.1',
  '127.8.9.1',
  '0',
  '0.0.0.0',
  '[::1]',
  '[::]',
  '10.1.2.3',
  '172.16.0.1',
  '172.31.255.255',
  '192.168.1.1',
  '169.254.169.254',
  '169.254.1.1',
  '100.64.0.1',
  '100.100.100.200',
  '[fc00::1]',
  '[fd12:3456::1]',
  '[fd00:ec2::254]',
  '[fe80::1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:10.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[64:ff9b::10.0.0.1]',
  '2130706433',
  '0x7f.1',
  '0x7f000001',
  '0177.0.0.1',
  '127.1',
  'localhost',
  'localhost.',
  'LOCALHOST',
  'some.localhost',
  '１２７.０.０.１',
  'metadata.google.internal',
  'metadata.google.internal.',
  '224.0.0.1',
  '239.255.255.250',
  '[ff02::1]',
  '255.255.255.255',
  '192.0.2.1',
  OWN_ADDRESS,
];

function rulesOf(changes: Partial<CallbackRulesOptions> = {}) {
  return createCallbackRules({
    allowedBy: 'jobs.callback_allow',
    allow: [],
    isOpen: () => false,
    ownAddresses: () => [OWN_ADDRESS, '10.0.0.5'],
    ...changes,
  });
}

const isRefused = (error: unknown) => errorCode(error) === 'CALLBACK_URL_REFUSED';

describe('where callbacks may go', () => {
  test('B-77: no address inside is open to callbacks of a guarded bridge, however it is written', () => {
    const { read } = rulesOf();
    for (const host of REFUSED_HOSTS) {
      assert.throws(() => read(`http://${host}/hook`), isRefused, host);
      assert.throws(() => read(`https://${host}:8443/hook`), isRefused, host);
    }
    for (const host of [PUBLIC, '[2606:2800:21f:cb07:6820:80da:af6b:8b2c]', 'example.com'])
      read(`https://${host}/hook`);
  });

  test('B-80: other schemes, credentials and the ports of mail and shells are refused', () => {
    const { read } = rulesOf();
    for (const url of [
      'file:///etc/passwd',
      'ftp://example.com/',
      'gopher://example.com/',
      'data:text/plain,hello',
      'javascript:alert(1)',
      'ws://example.com/',
      'http://user:password@example.com/',
      'http://user@example.com/',
      'http://example.com:22/',
      'https://example.com:25/',
      'http://',
      'example.com/hook',
      '',
      '//example.com/hook',
    ]) {
      assert.throws(() => read(url), isRefused, url);
    }
    assert.equal(read('http://example.com:8080/hook?x=1').url.href, 'http://example.com:8080/hook?x=1');
  });

  test('a bridge without a token may call its own machine, and nothing else inside', () => {
    const { read } = rulesOf({ isOpen: () => true });
    for (const host of ['127.0.0.1', 'localhost', '[::1]']) read(`http://${host}:9000/hook`);
    for (const host of ['10.0.0.5', '192.168.1.1', '169.254.169.254', '0.0.0.0', '100.64.0.1']) {
      assert.throws(() => read(`http://${host}/hook`), isRefused, host);
    }
  });

  test('B-82: the ranges that the operator lists are open, and no others; link-local and metadata never', () => {
    const { read } = rulesOf({ allow: ['10.20.0.0/16', '127.0.0.0/8', '169.254.0.0/16'] });
    for (const host of ['10.20.3.4', '127.0.0.1', 'localhost']) read(`http://${host}/hook`);
    for (const host of ['10.21.0.1', '192.168.1.1', '169.254.169.254', '169.254.1.1', '[::1]']) {
      assert.throws(() => read(`http://${host}/hook`), isRefused, host);
    }
  });
});

describe('names in callback addresses', () => {
  /** A network in which a name means something else each time it is asked for. */
  const networkOf = (...answers: readonly (readonly string[])[]): CallbackNetwork & { asked: number } => {
    const network = {
      ...systemCallbackNetwork,
      asked: 0,
      ownAddresses: () => [],
      async lookUp() {
        network.asked += 1;
        return answers[Math.min(network.asked, answers.length) - 1] ?? [];
      },
    };
    return network;
  };
  const postOf = (network: CallbackNetwork, allow: readonly string[] = []) =>
    createCallbackPost({ rules: rulesOf({ allow }), network, clock: systemClock });
  const request = { headers: {}, body: '{}', signal: new AbortController().signal };

  test('B-77: a name is refused when any of its addresses is inside', async () => {
    const { check } = postOf(networkOf([PUBLIC, '10.0.0.1']));
    await assert.rejects(check('https://internal.example/hook'), isRefused);
    const { check: other } = postOf(networkOf([PUBLIC]));
    assert.equal(await other('https://external.example/hook'), 'https://external.example/hook');
  });

  test('a name that cannot be looked up at the submit is not refused for that', async () => {
    const network = { ...networkOf(), lookUp: () => Promise.reject(new Error('no answer')) };
    assert.equal(await postOf(network).check('https://slow.example/'), 'https://slow.example/');
    await assert.rejects(postOf(network).post({ ...request, url: 'https://slow.example/' }), /no answer/);
  });

  test('B-78: a name that points inside when it is called is refused, though it did not at the submit', async (context) => {
    const inside = await startScriptedHttp(context, ({ response }) => void response.end());
    const network = networkOf([PUBLIC], ['127.0.0.1']);
    const { check, post } = postOf(network);
    const url = inside.url.replace('127.0.0.1', 'rebinding.example');
    await check(url);
    await assert.rejects(post({ ...request, url }), isRefused);
    assert.equal(inside.requests.length, 0);
  });

  test('B-78: the connection goes to the address that was checked, and the name is not asked again', async (context) => {
    const receiver = await startScriptedHttp(context, ({ response }) => void response.writeHead(204).end());
    const network = networkOf(['127.0.0.1'], ['10.0.0.1']);
    const { post } = postOf(network, ['127.0.0.0/8']);
    const url = receiver.url.replace('127.0.0.1', 'receiver.example');
    assert.equal(await post({ ...request, url }), 204);
    assert.equal(network.asked, 1);
    assert.equal(receiver.requests[0]?.headers.host, new URL(url).host);
  });

  test('B-78: the address at the other end of the socket has the last word', async (context) => {
    const inside = await startScriptedHttp(context, ({ response }) => void response.end());
    let asked = 0;
    const rules = rulesOf();
    const allows = () => {
      asked += 1;
      return asked === 1;
    };
    const lenient = { ...rules, allows };
    const { post } = createCallbackPost({ rules: lenient, network: networkOf(['127.0.0.1']), clock: systemClock });
    const url = inside.url.replace('127.0.0.1', 'odd.example');
    await assert.rejects(post({ ...request, url }), isRefused);
    assert.equal(asked, 2);
    assert.equal(inside.requests.length, 0);
  });
});

describe('callback addresses of a running bridge', () => {
  const network: CallbackNetwork = {
    ...systemCallbackNetwork,
    ownAddresses: () => [OWN_ADDRESS],
    lookUp: async () => [PUBLIC],
  };
  const providers = [createScriptedProvider('one')];

  test('B-77: they are refused at the submit of a guarded bridge', async (context) => {
    const { url } = await startBridge(context, { providers, network, isGuarded: true });
    const main = bearer(MAIN_TOKEN);
    for (const host of REFUSED_HOSTS) {
      const error = await refusal(url, { callbackUrl: `http://${host}/` }, main);
      assert.deepEqual([error?.code, error?.data.code], [-32602, 'CALLBACK_URL_REFUSED'], host);
    }
    assert.equal((await submitted(url, { webhookUrl: 'https://example.com/' }, main)).status, 'pending');
  });

  test('B-82: what the operator opens is logged at the start', async (context) => {
    const lines: unknown[] = [];
    const logger: Logger = { ...silentLogger, warn: (...line: unknown[]) => void lines.push(line) };
    const settings = 'jobs: { callback_allow: [10.9.0.0/16] }\n';
    const { url } = await startBridge(context, { providers, network, isGuarded: true, settings, logger });
    assert.match(JSON.stringify(lines), /10\.9\.0\.0\/16/);
    const main = bearer(MAIN_TOKEN);
    await submitted(url, { callbackUrl: 'http://10.9.1.1:1/' }, main);
    await refusal(url, { callbackUrl: 'http://10.8.1.1:1/' }, main);
  });
});
