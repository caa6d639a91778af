import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RoutingInput } from '../../../src/bridge/contract/routing.ts';
import { type RoutingFacts, resolveRoute } from '../../../src/bridge/routing/resolve-route.ts';

const up = (id: string) => ({ id, isAvailable: true, status: 'ok' });
const down = (id: string) => ({ id, isAvailable: false, status: 'not_installed' });

const facts: RoutingFacts = { agents: [down('a'), up('b'), up('c')], gateway: up('gate'), defaultAgent: 'c' };

function resolve(routing: RoutingInput, more: { session?: string; continues?: boolean; facts?: RoutingFacts } = {}) {
  const request = { routing, prompt: '', sessionAgent: more.session ?? '', continues: more.continues ?? false };
  return resolveRoute(request, more.facts ?? facts);
}

describe('the agent', () => {
  const none = { ...facts, agents: [down('a')] };
  const withoutDefault = { ...facts, defaultAgent: 'a' };
  const cases: [string, RoutingInput, Parameters<typeof resolve>[1], string][] = [
    ['the default agent when nothing is said', {}, {}, 'c'],
    ['the default agent with empty words', { routingMode: '', explicitProviderId: '' }, {}, 'c'],
    ['the first available when the default is down', {}, { facts: withoutDefault }, 'b'],
    ['the agent of the session before the default', {}, { session: 'b' }, 'b'],
    ['the default when the agent of the session is down', {}, { session: 'a' }, 'c'],
    ['nobody else when a message continues and its agent is down', {}, { session: 'a', continues: true }, ''],
    ['nobody when nobody is available', {}, { facts: none }, ''],
    ['the named agent', { explicitProviderId: 'b' }, {}, 'b'],
    ['the named agent before that of the session', { explicitProviderId: 'b' }, { session: 'c' }, 'b'],
    ['nobody for a named agent that is down', { explicitProviderId: 'a' }, {}, ''],
    ['nobody for a named agent that is unknown', { explicitProviderId: 'x' }, {}, ''],
    [
      'nobody in explicit mode for a named agent that is down',
      { explicitProviderId: 'a', routingMode: 'explicit' },
      {},
      '',
    ],
    ['nobody in explicit mode when none is named', { routingMode: 'explicit' }, {}, ''],
    [
      'the agent of the session in explicit mode when none is named',
      { routingMode: 'explicit' },
      { session: 'b' },
      'b',
    ],
    ['an agent for the words of older apps', { explicitExecutionTarget: 'singleAgent' }, {}, 'c'],
    ['an agent though a gateway is preferred', { preferredGatewayProviderId: 'gate' }, {}, 'c'],
  ];
  for (const [what, routing, more, expected] of cases) {
    test(`B-50: routing takes ${what}`, () => {
      const route = resolve({ ...routing, explicitModel: 'm' }, more);
      assert.equal(route.resolvedExecutionTarget, 'single-agent');
      assert.equal(route.resolvedProviderId, expected);
      assert.equal(route.providerId, expected);
      assert.equal(route.resolvedGatewayProviderId, '');
      assert.equal(route.resolvedModel, 'm');
      assert.equal(route.unavailable, expected === '');
      assert.equal(route.status, expected === '' ? 'unavailable' : 'available');
      assert.equal(route.unavailableCode, expected === '' ? 'PROVIDER_UNAVAILABLE' : undefined);
      assert.equal('unavailableMessage' in route, expected === '');
    });
  }
});

describe('the gateway', () => {
  const gateway = (preferredGatewayProviderId?: string) =>
    ({
      explicitExecutionTarget: 'gateway',
      ...(preferredGatewayProviderId !== undefined && { preferredGatewayProviderId }),
    }) as RoutingInput;

  test('a gateway task goes to the gateway that is named and online', () => {
    const route = resolve(gateway('gate'));
    assert.deepEqual(
      [route.resolvedExecutionTarget, route.resolvedGatewayProviderId, route.resolvedProviderId, route.status],
      ['gateway', 'gate', '', 'available'],
    );
  });

  test('a gateway that is unknown or offline is unavailable, and none at all an error', () => {
    for (const [wanted, known] of [
      ['other', facts],
      ['gate', { ...facts, gateway: down('gate') }],
    ] as const) {
      const route = resolve(gateway(wanted), { facts: known });
      assert.deepEqual([route.unavailableCode, route.resolvedGatewayProviderId], ['GATEWAY_UNAVAILABLE', '']);
    }
    for (const routing of [gateway(), gateway('')]) {
      assert.throws(() => resolve(routing), { code: 'GATEWAY_PROVIDER_REQUIRED' });
    }
  });
});

describe('skills', () => {
  const resolveSkills = (routing: RoutingInput, prompt = '') => {
    const { resolvedSkills, skillResolutionSource, needsSkillInstall, skillInstallRequestId } = resolveRoute(
      { routing, prompt, sessionAgent: '', continues: false },
      facts,
    );
    return [resolvedSkills, skillResolutionSource, needsSkillInstall, skillInstallRequestId];
  };
  const available = ['pdf', { id: 'sheet', label: 'Spread sheet' }, { id: 'web', installed: false }];

  test('skills that were asked for are taken as they are; those that are missing need an install', () => {
    assert.deepEqual(resolveSkills({ explicitSkills: ['pdf', 'sheet'], availableSkills: available }), [
      ['pdf', 'sheet'],
      'explicit',
      false,
      '',
    ]);
    assert.deepEqual(resolveSkills({ explicitSkills: ['web', 'pdf', 'draw', 'web'], availableSkills: available }), [
      ['web', 'pdf', 'draw', 'web'],
      'explicit',
      true,
      'skill-install:draw,web',
    ]);
    assert.deepEqual(resolveSkills({ explicitSkills: ['pdf'] }), [['pdf'], 'explicit', true, 'skill-install:pdf']);
  });

  for (const [prompt, expected] of [
    ['make a PDF, please', ['pdf']],
    ['pdfs and spdf', []],
    ['a spread sheet (pdf)', ['pdf', 'sheet']],
    ['use the sheet.', ['sheet']],
    ['pdf_x, pdfé and 2pdf', []],
    ['search the web', []],
    ['', []],
  ] as const) {
    test(`the words of "${prompt}" call for ${expected.join(' and ') || 'no skill'}`, () => {
      const source = expected.length > 0 ? 'local_match' : 'none';
      assert.deepEqual(resolveSkills({ availableSkills: available }, prompt), [[...expected], source, false, '']);
    });
  }

  test('nothing is resolved when nobody can do the work', () => {
    const unavailable = { explicitProviderId: 'a', explicitSkills: ['pdf'], availableSkills: available };
    assert.deepEqual(resolve(unavailable).resolvedSkills, []);
  });
});
