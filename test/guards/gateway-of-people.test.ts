import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScriptedGateway } from '../kit/scripted-gateway.ts';
import { BRIDGE_TOKEN, bearer, MASTER_KEY, startPeople } from '../kit/start-people.ts';

const gateway = await startScriptedGateway({ after }, {});
const at = { url: gateway.url, token: 'gateway-token-1' };
const tokens = { bridge: BRIDGE_TOKEN, completions: MASTER_KEY };

/** Every way to the gateway. */
const WAYS: readonly (readonly [string, object])[] = [
  ['app.gateway.connect', {}],
  ['app.gateway.request', { method: 'chat.history', params: { sessionKey: 'agent:main:main' } }],
  ['app.tools.invoke', { tool: 'message', action: 'send' }],
  [
    'session.start',
    {
      sessionId: 's',
      taskPrompt: 'say x',
      routing: { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' },
    },
  ],
  ['app.jobs.submit', { taskPrompt: 'say x', providerId: 'openclaw' }],
  ['app.jobs.submit', { taskPrompt: 'say x', providerId: 'builtin', target: 'somebody', channel: 'mail' }],
  ['app.gateway.disconnect', {}],
];

test('people use the gateway of the operator only where the settings open it to them', async () => {
  for (const isOpen of [false, true]) {
    const people = await startPeople({ after }, tokens, { gateway: { ...at, people: isOpen } });
    const { rpc, newPerson, asRoot } = people;
    const person = bearer((await newPerson('user', 'worker')).token);
    for (const [method, params] of WAYS) {
      const codeFor = async (headers: typeof person) => {
        const { body } = await rpc(method, headers, params);
        const result = body.result ?? {};
        return (
          body.error?.data.code ?? (/not open to users/.test(result.unavailableMessage ?? '') ? result.code : 'passed')
        );
      };
      const refused = method === 'session.start' ? 'GATEWAY_UNAVAILABLE' : 'GATEWAY_NOT_FOR_PEOPLE';
      const told = `${method} ${JSON.stringify(params)}, open: ${isOpen}`;
      for (const headers of [person, asRoot]) {
        const code = await codeFor(headers);
        if (isOpen) assert.notEqual(code, refused, told);
        else assert.equal(code, refused, told);
      }
      assert.notEqual(await codeFor(bearer(BRIDGE_TOKEN)), refused, told);
    }
  }
});
