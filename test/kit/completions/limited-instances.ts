import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../running-program.ts';

const MASTER = 'master-key-of-this-test';
/** What a token of the demo model costs here. */
const USD_PER_TOKEN = 0.001;
const SPENT = `SELECT cost_nano_usd::float8 AS cost, leased_nano_usd::float8 AS leased
  FROM completions.key_spending WHERE key_id = $1`;

export interface LimitedCall {
  /** 0: no answer came. */
  readonly status: number;
  readonly tokens: number;
}

/** Instances on one PostgreSQL that serve a model with a price, and calls to them. */
export function createLimitedInstances(scope: Scope, databaseUrl: string) {
  async function start(limitsWithoutDatabase = 'refuse', completions: object = {}): Promise<RunningProgram> {
    const own = await temporaryFolder(scope);
    const config = join(own, 'trestle.yaml');
    const prices = { 'demo/echo': { input: USD_PER_TOKEN, output: USD_PER_TOKEN } };
    const cluster = { limits_without_database: limitsWithoutDatabase };
    await writeFile(config, JSON.stringify({ cluster, completions: { prices, ...completions } }));
    const args = ['--config', config, '--log-level', 'warn', '--database', databaseUrl];
    return startProgram(scope, { args, dataDirectory: own, environment });
  }

  function post({ url }: RunningProgram, path: string, key: string, body: object): Promise<Response> {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    return fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  async function chat(program: RunningProgram, key: string, model = 'demo/echo'): Promise<LimitedCall> {
    const body = { model, max_tokens: 8, messages: [{ role: 'user', content: 'one two three four' }] };
    const response = await post(program, '/v1/chat/completions', key, body);
    const { usage } = (await response.json()) as { usage?: { total_tokens: number } };
    return { status: response.status, tokens: usage?.total_tokens ?? 0 };
  }

  return {
    start,
    chat,
    async issue(program: RunningProgram, limits: object): Promise<{ readonly id: string; readonly key: string }> {
      const response = await post(program, '/v1/keys', MASTER, { name: 'test', ...limits });
      if (response.status !== 201) throw new Error(await response.text());
      return (await response.json()) as { readonly id: string; readonly key: string };
    },
    /** So many calls to each instance, all at the same time; and how long that took. */
    async burst(key: string, calls: number, to: readonly RunningProgram[], model?: string) {
      const from = performance.now();
      const lost = { status: 0, tokens: 0 };
      const called = await Promise.all(
        to.flatMap((program) => Array.from({ length: calls }, () => chat(program, key, model).catch(() => lost))),
      );
      const seconds = (performance.now() - from) / 1000;
      const answered = called.filter(({ status }) => status === 200);
      const others = new Set(called.filter(({ status }) => status !== 200).map(({ status }) => status));
      return { seconds, answered, others, tokens: answered.reduce((sum, { tokens }) => sum + tokens, 0) };
    },
    /** What is stored as spent of the budget of a key, and what instances have set aside; in nano-USD. */
    async spent(id: string): Promise<{ readonly cost: number; readonly leased: number }> {
      const client = new Client({ connectionString: databaseUrl });
      await client.connect();
      const { rows } = await client.query(SPENT, [id]).finally(() => client.end());
      return (rows[0] as { cost: number; leased: number } | undefined) ?? { cost: 0, leased: 0 };
    },
  };
}

const environment = { COMPLETIONS_MASTER_KEY: MASTER };
