import assert from 'node:assert/strict';
import { test } from 'node:test';
import { offeredModels } from '../../src/system/agent-sandbox.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

function modelFor(text: string, environment: Readonly<Record<string, string>>): string {
  const { settings } = resolveTrestle(text);
  assert.ok(settings !== undefined, text);
  return offeredModels(settings, { homeDirectory: '/home/ann', environment }).model;
}

const KEY = { OPENAI_API_KEY: 'sk-0123456789' };

test('agents get a suggested model of the API that has a key, unless a model is named', () => {
  assert.equal(modelFor('{}', {}), 'demo/echo');
  assert.equal(modelFor('{}', KEY), 'openai/gpt-5.1');
  assert.equal(modelFor('{}', { ...KEY, ANTHROPIC_API_KEY: 'sk-ant-0123456789' }), 'anthropic/claude-sonnet-4-6');
  assert.equal(modelFor('agents: { model: demo/echo }', KEY), 'demo/echo');
  assert.equal(modelFor('agents: { model: fast }', KEY), 'fast');
  assert.equal(modelFor('agents: { builtin: { model: openai/gpt-4.1 } }', KEY), 'openai/gpt-4.1');
  assert.equal(modelFor('agents: { builtin: { base_url: "http://127.0.0.1:1/v1" } }', KEY), '');
});
