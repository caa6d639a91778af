import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { type TurnRouting as Routing, TurnRouting } from '../../src/bridge/contract/routing.ts';
import { matchesToolPattern } from '../../src/bridge/gateway/invoke-tool.ts';
import { fillTemplate, readPlan } from '../../src/bridge/multi-agent/multi-agent-plan.ts';
import { matchesPattern } from '../../src/completions/keys/issued-key.ts';
import fc from '../kit/properties.ts';
import { startProcessorTime } from '../kit/time.ts';
import { anyText, outcomeOf, runs } from './any-input.ts';
import { arbitraryFor, type JsonSchema } from './schema-arbitrary.ts';

const piece = fc.oneof(
  anyText,
  fc.constantFrom('{{input}}', '{{ name }}', '{{', '}}', '{', '}', '$&', '$1', '{{{input}}}'),
);
const template = fc.array(piece, { maxLength: 8 }).map((parts) => parts.join(''));

test('G18: values stand where the template has their names, and are never templates themselves', () => {
  fc.assert(
    fc.property(template, template, template, (text, input, name) => {
      const filled = fillTemplate(
        text,
        new Map([
          ['input', input],
          ['name', name],
        ]),
      );
      const parts = text.split(/\{\{([^{}]{1,128})\}\}/);
      const expected = parts.map((part, index) => {
        if (index % 2 === 0) return part;
        if (part.trim() === 'input') return input;
        return part.trim() === 'name' ? name : `{{${part}}}`;
      });
      assert.equal(filled, expected.join(''));
    }),
    runs(500),
  );
});

test('G18: a template without a value for its names stays as it is', () => {
  fc.assert(
    fc.property(template, (text) => {
      assert.equal(fillTemplate(text, new Map()), text);
    }),
    runs(300),
  );
});

test('G18: any routing that fits its schema is a plan of known agents, or refused', () => {
  const validator = Compile(TurnRouting);
  const words = ['codex', 'gemini', 'sequence', 'parallel', 'race', 'conversation', ''];
  const routing = arbitraryFor(TurnRouting as unknown as JsonSchema, { junkWeight: 0, words });
  fc.assert(
    fc.property(routing, anyText, (value, input) => {
      fc.pre(validator.Check(value));
      const outcome = outcomeOf(() => readPlan(value as Routing, input, ['codex', 'gemini']));
      if ('refused' in outcome) return;
      const { steps, maxTurns } = outcome.value;
      assert.ok(steps.length > 0 && maxTurns > 0);
      for (const { providerId, prompt, timeoutMs } of steps) {
        assert.ok(['codex', 'gemini'].includes(providerId) && prompt.trim() !== '' && timeoutMs > 0);
      }
    }),
    runs(300),
  );
});

const pattern = fc
  .array(fc.oneof(fc.constantFrom('*', 'a', '/', '.', '**'), anyText), { maxLength: 6 })
  .map((parts) => parts.join(''));

test('G18: a pattern of any text fits itself without its stars, and costs no time that grows with its stars', () => {
  fc.assert(
    fc.property(pattern, anyText, (text, filling) => {
      assert.equal(matchesPattern('*', filling), true);
      assert.equal(matchesPattern(text, text.replaceAll('*', filling)), true);
      matchesToolPattern(text, filling);
    }),
    runs(300),
  );
  const processorTime = startProcessorTime();
  assert.equal(matchesPattern(`${'*a'.repeat(5000)}b`, 'a'.repeat(20_000)), false);
  assert.ok(processorTime() < 5000);
});
