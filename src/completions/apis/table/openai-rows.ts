import type { ModelApi } from '../model-api.ts';

type Row = readonly [id: string, name: string, baseUrl: string, ...keyVariables: string[]];

/** Where the libraries of the vendors look for another address. */
const ADDRESS_VARIABLES: Readonly<Record<string, ModelApi['addressVariables']>> = {
  openai: [
    { name: 'OPENAI_BASE_URL', suffix: '' },
    { name: 'OPENAI_API_BASE', suffix: '' },
  ],
  ollama: [{ name: 'OLLAMA_HOST', suffix: '/v1' }],
};

/** Rows of APIs that speak OpenAI's dialect and differ by name, address and key alone. */
export function openAiRows(rows: readonly Row[], extra: Pick<ModelApi, 'local'> = {}): readonly ModelApi[] {
  return rows.map(([id, name, baseUrl, ...keyVariables]) => ({
    id,
    name,
    dialect: 'openai',
    baseUrl,
    keyVariables,
    ...(ADDRESS_VARIABLES[id] !== undefined && { addressVariables: ADDRESS_VARIABLES[id] }),
    ...extra,
  }));
}
