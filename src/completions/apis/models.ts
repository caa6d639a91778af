import type { Clock } from '../../platform/clock/clock.ts';
import { nearestName } from '../../platform/config/problem.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { ModelEntry, ModelList } from '../contract/keys.ts';
import type { CompletionsSettings } from '../settings.ts';
import { apiTable } from './api-table.ts';
import type { Catalogue } from './catalogue.ts';
import { DEMO_AGENT, DEMO_API, DEMO_MODEL, isDemo } from './demo-models.ts';
import { knownModels } from './known-models.ts';
import { canListModels, createLiveModels, type ListUpstreamModels } from './live-models.ts';
import type { FindApi, KnownModel, UsableApi } from './model-api.ts';
import { createPrices, type Price, type Rates, usdOfRate } from './prices.ts';
import { type ApiSources, type ResolvedApi, resolveApis } from './resolve-apis.ts';

/** The caller: only what decides which models are shown. */
interface ModelUser {
  mayUse(model: string): boolean;
}

/** The models that can be called here: aliases, and the models of usable APIs. */
export interface Models {
  readonly findApi: FindApi;
  /** Every API of the table and of the settings, usable or not. */
  apis(): ReadonlyMap<string, ResolvedApi>;
  priceOf(api: string, upstreamModel: string): Price;
  /** What the holder of a key may use, with all that is known of it. */
  list(holder: ModelUser): Promise<readonly ModelEntry[]>;
  /** Undefined when there is none, or none that the holder may use. */
  find(id: string, holder: ModelUser): ModelEntry | undefined;
  /** Names to suggest for one that is not known. */
  knownNames(): readonly string[];
  /** The configured APIs that have a model of this name in the catalogue. */
  apisWith(model: string): readonly string[];
  reload(settings: CompletionsSettings): void;
  stop(): void;
}

interface ModelsOptions extends ApiSources {
  readonly settings: CompletionsSettings;
  readonly catalogue: Catalogue;
  readonly listUpstream: ListUpstreamModels;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
}

const ALIAS_OWNER = 'trestle';

export function createModels(options: ModelsOptions): Models {
  const { environment, isOwnAddress, catalogue, listUpstream, clock } = options;
  const { modelsOf } = catalogue;
  const live = createLiveModels({ list: listUpstream, clock });
  let { settings } = options;
  let apis = resolveApis({ settings, environment, isOwnAddress });
  let priceOf = createPrices(settings.prices, catalogue);

  const usable = (): readonly UsableApi[] =>
    [...apis.values()].flatMap((resolved) => (resolved.usable ? [resolved.api] : []));

  function findApi(id: string, key?: string): UsableApi | undefined {
    const resolved = apis.get(id);
    if (resolved?.usable !== true) return undefined;
    return key === undefined ? resolved.api : resolved.api.pool?.find(({ name }) => name === key)?.api;
  }

  /** Made with the first name that has no API before it, and again when the catalogue was updated. */
  let apisByModel: ReadonlyMap<string, readonly string[]> | undefined;
  let indexed = catalogue.revision();

  function indexModels(): ReadonlyMap<string, readonly string[]> {
    const index = new Map<string, string[]>();
    for (const { id, configured } of usable()) {
      if (!configured) continue;
      for (const name of modelsOf(id).keys()) index.set(name, [...(index.get(name) ?? []), id]);
    }
    return index;
  }

  function describe(api: string, model: string): ModelEntry {
    const known = modelsOf(api).get(model);
    const price = priceOf(api, model);
    return {
      ...plainEntry(`${api}/${model}`, api, known?.released),
      ...(known?.contextWindow !== undefined && { context_window: known.contextWindow }),
      ...(known?.maxOutputTokens !== undefined && { max_output_tokens: known.maxOutputTokens }),
      ...(price.known && { pricing: describePrice(price) }),
      ...describeAbilities(known),
    };
  }

  function describeAlias({ name, targets }: CompletionsSettings['models'][number]): ModelEntry {
    const [only, ...more] = targets;
    if (only === undefined || more.length > 0) return plainEntry(name, ALIAS_OWNER);
    const [api, model] = splitModel(only.model);
    return { ...describe(api, model), id: name, owned_by: ALIAS_OWNER };
  }

  const builtIn = (): readonly ModelEntry[] => [
    ...settings.models.map(describeAlias),
    plainEntry(DEMO_MODEL, DEMO_API),
  ];

  async function namesOf(api: UsableApi): Promise<readonly string[]> {
    const known = modelsOf(api.id);
    if (known.size > 0) return [...known.keys()];
    return canListModels(api) && isWorthAsking(api, usable()) ? live.of(api) : [];
  }

  return {
    findApi,
    apis: () => apis,
    priceOf: (api, model) => priceOf(api, model),
    async list(holder) {
      const listed = await Promise.all(
        usable().map(async (api) => (await namesOf(api)).map((name) => describe(api.id, name))),
      );
      return [...builtIn(), ...listed.flat()].filter(({ id }) => holder.mayUse(id));
    },
    find(id, holder) {
      if (!holder.mayUse(id)) return undefined;
      const own = builtIn().find((entry) => entry.id === id);
      if (own !== undefined) return own;
      const [api, model] = splitModel(id);
      if (api === DEMO_API && isDemo(model)) return plainEntry(id, DEMO_API);
      return model === '' || findApi(api) === undefined ? undefined : describe(api, model);
    },
    knownNames: () => [
      ...builtIn().map(({ id }) => id),
      DEMO_AGENT,
      ...usable().flatMap(({ id }) => [...modelsOf(id).keys()].map((model) => `${id}/${model}`)),
    ],
    apisWith(model) {
      if (indexed !== catalogue.revision()) apisByModel = undefined;
      indexed = catalogue.revision();
      apisByModel ??= indexModels();
      return apisByModel.get(model) ?? [];
    },
    reload(next) {
      settings = next;
      apisByModel = undefined;
      apis = resolveApis({ settings, environment, isOwnAddress });
      priceOf = createPrices(settings.prices, catalogue);
    },
    stop: () => live.stop(),
  };
}

/**
 * A server on this machine needs no key, so it may be there or not: it is asked when it is configured, or when no other
 * row has its port. Several kinds of servers share 8000 and 8080, and what answers there need not be any of them.
 */
function isWorthAsking(api: UsableApi, others: readonly UsableApi[]): boolean {
  if (api.local !== true || api.configured) return true;
  const { host } = new URL(api.baseUrl);
  const port = host.slice(host.lastIndexOf(':'));
  return others.every((other) => other.id === api.id || !other.baseUrl.includes(`${port}/`));
}

/** Every price that differs from the one that would apply without it. */
function describePrice({ rates, batch, tiers = [] }: Price): NonNullable<ModelEntry['pricing']> {
  return {
    ...describeRates(rates),
    ...(batch !== undefined && { batch: describeRates(batch) }),
    ...(tiers.length > 0 && { tiers: tiers.map((tier) => ({ above: tier.above, ...describeRates(tier.rates) })) }),
  };
}

function describeRates(rates: Rates) {
  const { input, output, cacheWrite } = rates;
  const own = (name: string, rate: number, otherwise: number) =>
    rate === otherwise ? {} : { [name]: usdOfRate(rate) };
  return {
    input: usdOfRate(input),
    output: usdOfRate(output),
    ...own('cache_read', rates.cacheRead, input),
    ...own('cache_write', cacheWrite, input),
    ...own('cache_write_1h', rates.cacheWrite1h, cacheWrite),
    ...own('audio_input', rates.audioInput, input),
    ...own('image_input', rates.imageInput, input),
    ...own('audio_output', rates.audioOutput, output),
    ...own('reasoning', rates.reasoning, output),
    ...own('per_image', rates.perImage, 0),
    ...own('per_second', rates.perSecond, 0),
    ...own('per_character', rates.perCharacter, 0),
    ...own('per_search', rates.perSearch, 0),
  };
}

function describeAbilities(known: KnownModel | undefined): Partial<ModelEntry> {
  if (known === undefined) return {};
  const { inputModalities, outputModalities, tools, structuredOutput, reasoning, temperature } = known;
  return {
    ...(inputModalities !== undefined && { input_modalities: [...inputModalities] }),
    ...(outputModalities !== undefined && { output_modalities: [...outputModalities] }),
    ...(tools !== undefined && { tools }),
    ...(structuredOutput !== undefined && { structured_output: structuredOutput }),
    ...(reasoning !== undefined && { reasoning }),
    ...(temperature !== undefined && { temperature }),
    ...(known.released !== undefined && { release_date: known.released }),
    ...(known.updated !== undefined && { last_updated: known.updated }),
    ...(known.knowledge !== undefined && { knowledge_cutoff: known.knowledge }),
    ...(known.operation !== undefined && { operation: known.operation }),
  };
}

function plainEntry(id: string, owner: string, released?: string): ModelEntry {
  return { id, object: 'model', created: released === undefined ? 0 : secondsOf(released), owned_by: owner };
}

function secondsOf(day: string): number {
  const at = Date.parse(day);
  return Number.isNaN(at) ? 0 : Math.floor(at / 1000);
}

export function splitModel(id: string): readonly [api: string, model: string] {
  const slash = id.indexOf('/');
  return slash === -1 ? [id, ''] : [id.slice(0, slash), id.slice(slash + 1)];
}

/** How models are shown: in full under `/v1`, as plain entries under paths without it. */
export function createModelViews(models: Models) {
  const shown = (prefix: '' | '/v1', entry: ModelEntry): ModelEntry => (prefix === '' ? plain(entry) : entry);
  return {
    async list(prefix: '' | '/v1', user: ModelUser): Promise<ModelList> {
      return { object: 'list', data: (await models.list(user)).map((entry) => shown(prefix, entry)) };
    },
    /** Throws MODEL_NOT_FOUND, with names that come near. */
    show(prefix: '' | '/v1', id: string, user: ModelUser): ModelEntry {
      const entry = models.find(id, user);
      if (entry !== undefined) return shown(prefix, entry);
      const names = models.knownNames().filter((name) => user.mayUse(name));
      throw new AppError('MODEL_NOT_FOUND', { model: id.slice(0, 200), nearest: nearestModels(id, names) });
    },
  };
}

function plain({ id, object, created, owned_by }: ModelEntry): ModelEntry {
  return { id, object, created, owned_by };
}

const SUGGESTIONS = 3;
const LIST_HINT = 'Run "trestle models", or ask for GET /v1/models, to see the names that work here.';

/**
 * Returns a sentence for a caller who named an unknown model: up to three similar names, the same model at any usable API
 * first; else the key of an API that has the model; else where the names are listed.
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
  // A name without an API is compared with the names of models alone.
  const compared = new Map<string, string>();
  for (const name of candidates) {
    const short = wanted.includes('/') ? name : name.slice(name.indexOf('/') + 1);
    if (!compared.has(short)) compared.set(short, name);
  }
  while (found.length < SUGGESTIONS) {
    const short = nearestName(wanted, compared.keys());
    if (short === undefined) break;
    found.push(compared.get(short) ?? short);
    compared.delete(short);
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

/** The APIs that are known, those without a key too; never a key itself. */
export function apiStatus(models: Pick<Models, 'apis'>) {
  return [...models.apis().values()].map((resolved) => {
    if (!resolved.usable) {
      const { id, missing, keyVariables } = resolved;
      return { id, usable: false, missing: [...missing], key_variables: [...keyVariables] };
    }
    const { id, name, dialect, baseUrl, configured, keyVariables, keyFrom } = resolved.api;
    const key = { key_variables: [...keyVariables], ...(keyFrom !== undefined && { key_from: keyFrom }) };
    return { id, usable: true, name, dialect, base_url: baseUrl, configured, ...key };
  });
}
