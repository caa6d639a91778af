import { Type } from 'typebox';
import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError } from '../platform/errors/error-table.ts';
import { defineMethod, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Catalogue } from './apis/catalogue.ts';
import type { CatalogueUpdates } from './apis/catalogue-updates.ts';
import { apiStatus, type Models } from './apis/models.ts';
import {
  ApiStatus,
  IssuedKey,
  KeyChange,
  KeyInfo,
  KeyList,
  KeyListQuery,
  KeyPath,
  KeyRotation,
  ModelEntry,
  NewKey,
  UsageQuery,
  UsageReport,
} from './contract/keys.ts';
import { completionsErrors } from './errors.ts';
import { INTERNAL } from './keys/key-access.ts';
import type { KeyRegister } from './keys/key-register.ts';
import type { MeteredKeys } from './metered-keys.ts';
import type { RunChat } from './operations/run-chat.ts';

export interface ControlParts {
  readonly register: KeyRegister;
  readonly report: MeteredKeys['report'];
  readonly models: Models;
  readonly catalogue: Pick<Catalogue, 'date'>;
  readonly updateCatalogue: CatalogueUpdates['update'];
  readonly runChat: RunChat;
  readonly clock: Pick<Clock, 'monotonic'>;
}

const ModelTest = Type.Object({
  ok: Type.Boolean(),
  model: Type.String(),
  status: Type.Integer(),
  duration_ms: Type.Integer(),
  text: Type.Optional(Type.String()),
  error: Type.Optional(Type.Object({ code: Type.String(), message: Type.String() })),
  headers: Type.Optional(Type.Record(Type.String(), Type.String())),
});

/** What each method returns. Commands have their types from here. */
export const completionsControlResults = {
  'keys.create': IssuedKey,
  'keys.list': KeyList,
  'keys.change': KeyInfo,
  'keys.rotate': IssuedKey,
  'keys.revoke': Type.Object({}),
  'usage.report': UsageReport,
  'models.list': Type.Object({
    apis: Type.Array(ApiStatus),
    models: Type.Array(ModelEntry),
    prices_date: Type.String({ description: 'The day of the sizes and prices.' }),
  }),
  'models.update': Type.Object({
    version: Type.String(),
    source: Type.String(),
    date: Type.String(),
    models: Type.Integer(),
    changed: Type.Boolean({ description: 'False: the same was in force before.' }),
  }),
  'models.test': ModelTest,
};

const TEST_TOKENS = 64;
const COMMAND = { actor: 'command' };

/** What the operator's commands ask of this service: `trestle key`, `trestle models`, `trestle usage`. */
export function completionsControlMethods(parts: ControlParts): readonly MethodRow<undefined>[] {
  const { register, report, models } = parts;
  return [
    defineMethod({
      name: 'keys.create',
      summary: 'Issues a key.',
      params: NewKey,
      result: completionsControlResults['keys.create'],
      handle: (input) => register.create(input, COMMAND),
    }),
    defineMethod({
      name: 'keys.list',
      summary: 'Lists the issued keys.',
      params: KeyListQuery,
      result: completionsControlResults['keys.list'],
      handle: (query) => register.list(query),
    }),
    defineMethod({
      name: 'keys.change',
      summary: 'Changes the name, the limits or the models of a key, or disables it.',
      params: Type.Object({ ...KeyPath.properties, change: KeyChange }),
      result: completionsControlResults['keys.change'],
      handle: ({ id, change }) => register.change(id, change, undefined, COMMAND),
    }),
    defineMethod({
      name: 'keys.rotate',
      summary: 'Replaces a key by a new one.',
      params: Type.Object({ ...KeyPath.properties, ...KeyRotation.properties }),
      result: completionsControlResults['keys.rotate'],
      handle: ({ id, ...rotation }) => register.rotate(id, rotation, undefined, COMMAND),
    }),
    defineMethod({
      name: 'keys.revoke',
      summary: 'Removes a key.',
      params: KeyPath,
      result: completionsControlResults['keys.revoke'],
      async handle({ id }) {
        await register.remove(id, undefined, COMMAND);
        return {};
      },
    }),
    defineMethod({
      name: 'usage.report',
      summary: 'Reports usage and cost of all calls.',
      params: UsageQuery,
      result: completionsControlResults['usage.report'],
      handle: (query) => report(INTERNAL, query),
    }),
    defineMethod({
      name: 'models.list',
      summary: 'Lists the APIs, and the models that can be called.',
      params: Type.Object({}),
      result: completionsControlResults['models.list'],
      handle: async () => ({
        apis: apiStatus(models),
        models: [...(await models.list(INTERNAL))],
        prices_date: parts.catalogue.date(),
      }),
    }),
    defineMethod({
      name: 'models.update',
      summary: 'Reads the catalogue of models from a file or an address.',
      params: Type.Object({ source: Type.Optional(Type.String({ minLength: 1, maxLength: 4096 })) }),
      result: completionsControlResults['models.update'],
      handle: ({ source }) => parts.updateCatalogue(source),
    }),
    defineMethod({
      name: 'models.test',
      summary: 'Sends one small request to a model.',
      params: Type.Object({ model: Type.String({ minLength: 1 }) }),
      result: completionsControlResults['models.test'],
      handle: ({ model }, { requestId, signal }) => testModel(parts, model, requestId, signal),
    }),
  ];
}

async function testModel(parts: ControlParts, model: string, requestId: string, signal: AbortSignal) {
  const { runChat, clock, models } = parts;
  const startedAt = clock.monotonic();
  const took = () => Math.round(clock.monotonic() - startedAt);
  try {
    const answer = await runChat({
      request: { model, messages: [{ role: 'user', content: 'Say hello.' }], max_tokens: TEST_TOKENS },
      holder: INTERNAL,
      requestId,
      strict: false,
      signal,
    });
    if (answer.kind !== 'whole') throw new AppError('INTERNAL_ERROR');
    const [choice] = answer.completion.choices;
    const text = choice?.message.content ?? '';
    return { ok: true, model, status: 200, duration_ms: took(), text, headers: { ...answer.headers } };
  } catch (error) {
    const described = describeError(completionsErrors, error);
    const message =
      described.code === 'MODEL_NOT_FOUND' ? (lackOf(models, model) ?? described.message) : described.message;
    const status = described.status;
    return { ok: false, model, status, duration_ms: took(), error: { code: described.code.toLowerCase(), message } };
  }
}

/** What an API that is known would need. */
function lackOf(models: Models, model: string): string | undefined {
  const resolved = models.apis().get(model.slice(0, Math.max(0, model.indexOf('/'))));
  if (resolved === undefined || resolved.usable) return undefined;
  return `The API "${resolved.id}" cannot be used yet: set ${resolved.missing.join(', ')}.`;
}
