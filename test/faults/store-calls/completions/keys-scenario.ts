import { usdOfNano } from '../../../../src/completions/apis/prices.ts';
import { startCompletions } from '../../../kit/completions/start-completions.ts';
import { MASTER_KEY } from '../../../kit/completions/start-keys.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { CALL_PRICE, MAX_TOKENS, PRICES, startCountingUpstream } from '../../metering/counting-upstream.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskCompletions } from './ask-completions.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Enough for three calls, and not for a fourth. */
const BUDGET_USD = CALL_PRICE.costUsd * 3.5;

/** Keys, what calls cost them, reports of it, and the end of both. */
export const keysScenario: Scenario = {
  name: 'keys and usage',
  service: 'completions',
  async play(stage) {
    const clock = stage.passing(createFakeClock());
    const upstream = await startCountingUpstream(
      () => undefined,
      () => 0,
    );
    stage.scope.after(upstream.close);
    const apis = { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'key-of-the-lab-77' } };
    const settings = { apis, prices: PRICES, master_key: MASTER_KEY };
    const running = await startCompletions(stage.scope, { settings, clock, usageRetentionMs: DAY_MS });
    const { database, completions } = running;
    const { query } = database;
    const secrets = [MASTER_KEY, 'key-of-the-lab-77'];
    const ask = createAskCompletions(running.url, secrets);
    stage.watch(database);

    let answered = 0;
    const master = (path: string) => stage.step({ name: `GET ${path}`, ask: () => ask({ path, key: MASTER_KEY }) });
    const keys = async () => (await query.selectFrom('keys').select('id').execute()).map(({ id }) => id);
    const issue = async (name: string, more: object): Promise<{ readonly id: string; readonly key: string }> => {
      const before = await keys();
      const body = { name, ...more };
      const issued = await stage.step({
        name: `a key: ${name}`,
        ask: () => ask({ method: 'POST', path: '/keys', key: MASTER_KEY, body }),
        stored: async () => storedOf((await keys()).length > before.length),
      });
      secrets.push(issued?.key);
      return issued;
    };
    const call = async (name: string, key: string, refusal?: string): Promise<void> => {
      const messages = [{ role: 'user', content: name }];
      const body = { model: 'lab/small', max_tokens: MAX_TOKENS, messages };
      const told = await stage.step({
        name,
        ask: () => ask({ method: 'POST', path: '/chat/completions', key, body }),
        ...(refusal !== undefined && { refusal }),
      });
      if (told !== undefined) answered += 1;
    };
    const sum = async (table: 'key_spending' | 'usage_records') =>
      (await query.selectFrom(table).select('cost_nano_usd').execute()).reduce(
        (all, row) => all + usdOfNano(row.cost_nano_usd),
        0,
      );
    const requests = async () => {
      const rows = await query.selectFrom('usage_quarters').select('requests').execute();
      return rows.reduce((all, row) => all + row.requests, 0);
    };

    const poor = await issue('with a budget', { budget: { usd: BUDGET_USD, period: 'total' } });
    const free = await issue('without a budget', {});
    await master('/keys');
    await call('the first call', poor.key);
    await master('/usage?group_by=key');
    await call('the second call', poor.key);
    await call('the third call', poor.key);
    await call('a call beyond the budget', poor.key, 'budget_exceeded');
    await call('a call without a budget', free.key);
    await stage.step({ name: 'a report for a key', ask: () => ask({ path: '/v1/usage', key: poor.key }) });
    const spent = await sum('key_spending');
    stage.note({
      kind: 'fact',
      name: 'what a key has spent',
      wanted: near(CALL_PRICE.costUsd * 3),
      found: near(spent),
    });

    await stage.step({
      name: 'the end of a key',
      ask: () => ask({ method: 'DELETE', path: `/keys/${free.id}`, key: MASTER_KEY }),
      stored: async () => storedOf(!(await keys()).includes(free.id)),
      whenDone: ['key_not_found'],
    });
    await call('a call with a key that was removed', free.key, 'invalid_api_key');
    await call('a call with the master key', MASTER_KEY);
    await completions.stop();
    stage.note({ kind: 'fact', name: 'calls that were counted', wanted: answered, found: await requests() });
    const recorded = await sum('usage_records');
    const cost = CALL_PRICE.costUsd * answered;
    stage.note({ kind: 'fact', name: 'what calls have cost', wanted: near(cost), found: near(recorded) });
    stage.mend();
  },
};

/** Usage that is too old is removed. */
export const usageRetentionScenario: Scenario = {
  name: 'usage that is too old',
  service: 'completions',
  async play(stage) {
    const clock = stage.passing(createFakeClock());
    const running = await startCompletions(stage.scope, { clock, usageRetentionMs: DAY_MS });
    const { query } = running.database;
    const hello = { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] };
    for (let count = 0; count < 2; count += 1) await (await running.post('/v1/chat/completions', hello)).text();
    await running.usage();
    stage.watch(running.database);
    clock.stepWall(3 * DAY_MS);
    const left = async () => {
      const tables = ['usage_records', 'usage_quarters', 'usage_flushes'] as const;
      const rows = await Promise.all(tables.map((table) => query.selectFrom(table).selectAll().execute()));
      return rows.flat().length;
    };
    await passUntil(clock, HOUR_MS, 'old usage to be removed', async () => (await left()) === 0);
    stage.mend();
    stage.note({ kind: 'fact', name: 'rows that are too old', wanted: 0, found: await left() });
  },
};

/** Sums of decimal numbers are not exact. */
function near(usd: number): string {
  return usd.toFixed(6);
}
