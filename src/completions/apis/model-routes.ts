import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import { ModelEntry, ModelList } from '../contract/model-list.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { KeyAccess } from '../keys/key-access.ts';
import type { Models } from './models.ts';
import { nearestModels } from './nearest-models.ts';

/** The rows that show models: in full under `/v1`, as the document has them without (contract/completions 3). */
export function modelRoutes(
  prefix: '' | '/v1',
  { access, models }: { readonly access: KeyAccess; readonly models: Models },
): readonly Route<KeyHolder>[] {
  const guard = access.withKey;
  const shown = (entry: ModelEntry): ModelEntry => (prefix === '' ? plain(entry) : entry);
  return [
    {
      method: 'GET',
      path: `${prefix}/models`,
      guard,
      summary: 'List the models that your key may use.',
      schema: { response: { 200: ModelList } },
      handle: async ({ caller }) => ({ object: 'list', data: (await models.list(caller)).map(shown) }),
    },
    {
      method: 'GET',
      // Ids have slashes in them, plain or encoded.
      path: `${prefix}/models/*`,
      guard,
      summary: 'Show one model.',
      schema: { response: { 200: ModelEntry } },
      handle({ caller, params }) {
        const id = params['*'] ?? '';
        const entry = models.find(id, caller);
        if (entry !== undefined) return shown(entry);
        const names = models.knownNames().filter((name) => caller.mayUse(name));
        throw new AppError('MODEL_NOT_FOUND', { model: id.slice(0, 200), nearest: nearestModels(id, names) });
      },
    },
  ];
}

function plain({ id, object, created, owned_by }: ModelEntry): ModelEntry {
  return { id, object, created, owned_by };
}
