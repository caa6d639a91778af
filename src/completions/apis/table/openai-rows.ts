import type { ModelApi } from '../model-api.ts';

type Row = readonly [id: string, name: string, baseUrl: string, ...keyVariables: string[]];

/** Rows of APIs that speak OpenAI's dialect and differ by name, address and key alone. */
export function openAiRows(rows: readonly Row[], extra: Pick<ModelApi, 'local'> = {}): readonly ModelApi[] {
  return rows.map(([id, name, baseUrl, ...keyVariables]) => ({
    id,
    name,
    dialect: 'openai',
    baseUrl,
    keyVariables,
    ...extra,
  }));
}
