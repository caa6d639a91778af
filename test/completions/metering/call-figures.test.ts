import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCallFigures } from '../../../src/completions/metering/call-telemetry.ts';
import { createHttpMetrics } from '../../../src/platform/http/http-metrics.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

const observed = (changes: Parameters<typeof outcomeOf>[0] = {}) => ({
  holder: holderOf(),
  outcome: outcomeOf(changes),
  promptTokens: 10,
  completionTokens: 5,
  costNano: 250_000_000,
  priceKnown: changes.api !== 'unpriced',
});

test('calls are counted by model, API and outcome, as Prometheus reads it', async () => {
  const figures = createCallFigures(() => ({ waiting: 3, dropped: 7 }));
  figures.observe(observed());
  figures.observe(observed({ outcome: 'error', durationMs: 3000 }));
  figures.observe(observed({ api: 'unpriced' }));
  const { text } = await createHttpMetrics({ sources: figures.sources }).read();
  for (const line of [
    'completions_calls_total{model="lab/small",api="lab",outcome="ok"} 1',
    'completions_calls_total{model="lab/small",api="lab",outcome="error"} 1',
    'completions_tokens_total{model="lab/small",api="lab",kind="prompt"} 20',
    'completions_cost_usd_total{model="lab/small",api="lab"} 0.5',
    'completions_unpriced_calls_total{model="lab/small",api="unpriced"} 1',
    'completions_call_duration_seconds_bucket{model="lab/small",api="lab",le="0.25"} 1',
    'completions_call_duration_seconds_bucket{model="lab/small",api="lab",le="5"} 2',
    'completions_call_duration_seconds_bucket{model="lab/small",api="lab",le="+Inf"} 2',
    'completions_call_duration_seconds_count{model="lab/small",api="lab"} 2',
    'completions_first_token_seconds_sum{model="lab/small",api="lab"} 0.08',
    'completions_usage_records_dropped_total 7',
    'completions_usage_records_waiting 3',
  ]) {
    assert.ok(text.includes(`${line}\n`), `${line}\n\n${text}`);
  }
});

test('names that callers make up do not make labels without end', async () => {
  const figures = createCallFigures(() => ({ waiting: 0, dropped: 0 }));
  for (let name = 0; name < 1000; name += 1) figures.observe(observed({ model: `lab/${name}${'x'.repeat(300)}` }));
  const { text } = await createHttpMetrics({ sources: figures.sources }).read();
  const calls = text.split('\n').filter((line) => line.startsWith('completions_calls_total'));
  assert.equal(calls.length, 201);
  assert.ok(calls.includes('completions_calls_total{model="other",api="other",outcome="ok"} 800'));
  assert.ok(calls.every((line) => line.length < 200));
});
