import { DatabaseSync } from 'node:sqlite';
import type { StoredUsage } from './check-operations.ts';

/** What the file has, read without the program. */
export function readStoredUsage(file: string): StoredUsage {
  using database = new DatabaseSync(file, { readOnly: true });
  const all = (text: string) => database.prepare(text).all();
  const calls = all(
    'SELECT request_id, key_id, prompt_tokens + completion_tokens AS tokens, cost_nano_usd / 1e9 AS cost_usd FROM usage_records',
  );
  const totals = all(
    'SELECT key_id, SUM(requests) AS requests, SUM(prompt_tokens + completion_tokens) AS tokens, SUM(cost_nano_usd) / 1e9 AS cost_usd FROM usage_quarters GROUP BY key_id',
  );
  return {
    calls: calls.map((row) => ({
      id: String(row.request_id),
      key: String(row.key_id),
      tokens: Number(row.tokens),
      costUsd: Number(row.cost_usd),
    })),
    totals: totals.map((row) => ({
      key: String(row.key_id),
      calls: Number(row.requests),
      tokens: Number(row.tokens),
      costUsd: Number(row.cost_usd),
    })),
    spending: all('SELECT key_id, SUM(cost_nano_usd) / 1e9 AS cost_usd FROM key_spending GROUP BY key_id').map(
      (row) => ({
        key: String(row.key_id),
        costUsd: Number(row.cost_usd),
      }),
    ),
  };
}
