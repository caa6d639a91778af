import { nearestName } from '../../platform/config/problem.ts';
import { apiTable } from './api-table.ts';
import { knownModels } from './known-models.ts';

const SUGGESTIONS = 3;
const LIST_HINT = 'Run "trestle models", or ask for GET /v1/models, to see the names that work here.';

/**
 * What somebody who asked for an unknown model should do, as a sentence: up to three names they may have meant, the same
 * model at any usable API first; else the key of an API that has the model; else where the names are listed.
 */
export function nearestModels(wanted: string, names: Iterable<string>): string {
  const candidates = new Set(names);
  const found: string[] = [];
  for (const name of candidates) {
    if (found.length < SUGGESTIONS && wanted !== '' && name.endsWith(`/${wanted}`)) found.push(name);
  }
  if (found.length === 0) {
    const keyed = keyedModel(wanted);
    if (keyed !== undefined) return keyed;
  }
  for (const name of found) candidates.delete(name);
  while (found.length < SUGGESTIONS) {
    const name = nearestName(wanted, candidates);
    if (name === undefined) break;
    found.push(name);
    candidates.delete(name);
  }
  return found.length > 0 ? `Nearest: ${found.join(', ')}.` : LIST_HINT;
}

/** APIs that make a model themselves come before those that resell it. */
const MAKERS = ['openai', 'anthropic', 'google', 'mistral', 'deepseek', 'xai', 'cohere'];

function keyedModel(wanted: string): string | undefined {
  if (wanted === '' || wanted.includes('/')) return undefined;
  const has = (id: string) => knownModels(id).has(wanted);
  const id = MAKERS.find(has) ?? [...apiTable.keys()].find(has);
  return id === undefined ? undefined : `Use "${id}/${wanted}": ${keyHint(id, apiTable.get(id)?.keyVariables ?? [])}`;
}

/** What makes an API usable. */
function keyHint(apiId: string, missing: readonly string[]): string {
  return `set ${missing.join(' or ')} in the environment of the server, or completions.apis.${apiId}.api_key in its settings.`;
}
