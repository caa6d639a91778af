import { AppError } from '../../platform/errors/app-error.ts';
import { DEMO_API, isDemo } from '../apis/demo-models.ts';
import type { FindApi, PoolKey } from '../apis/model-api.ts';
import { nearestModels } from '../apis/models.ts';
import type { CompletionsSettings } from '../settings.ts';

/** 0: no limit. */
export interface TargetLimits {
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
}

/** One model of one API that can answer a call, with one key of that API. */
export interface Target extends TargetLimits {
  /** `<api>/<model>`, followed by `#<key>` if the API has several keys. Limits, circuit and log use this name. */
  readonly id: string;
  /** `demo` for the built-in model, which has no upstream. */
  readonly apiId: string;
  readonly model: string;
  readonly weight: number;
  readonly priority: number;
  /** Which key of the API's pool it is; absent for an API with one key. */
  readonly key?: string;
  /** The limits of that key, for all models. */
  readonly keyLimits?: TargetLimits;
  /** Those of the alias, else of the API, else of all. */
  readonly timeouts: PlanTimeouts;
}

export interface PlanTimeouts {
  readonly connect: number;
  readonly first_byte: number;
  readonly idle: number;
  readonly total: number;
}

/** The targets and fallbacks for calls of one model name. */
export interface ModelPlan {
  readonly name: string;
  readonly targets: readonly Target[];
  /** Which target of a priority is asked first. Absent: `weighted`. */
  readonly strategy?: CompletionsSettings['models'][number]['strategy'];
  readonly fallbacks: readonly string[];
  readonly contextFallbacks: readonly string[];
  readonly retries: number;
  readonly cacheTtlMs: number;
}

export interface ModelPlans {
  /**
   * With the targets that can be asked now, if any. Throws MODEL_NOT_FOUND, with the nearest names. The plan of a name that only
   * stands for another has that other name, which is what keys are checked against.
   */
  resolve(model: string): ModelPlan;
  /** What a name stands for: itself for an alias, for <api>/<model> and for what is not known. */
  nameOf(model: string): string;
}

export interface ModelPlansOptions {
  readonly settings: Pick<CompletionsSettings, 'models' | 'apis' | 'timeouts' | 'model_patterns' | 'api_order'>;
  /** An API that can be called now; undefined when it is not known or has no key. */
  readonly findApi: FindApi;
  /** Names to suggest for one that is not known. */
  readonly knownNames: () => Iterable<string>;
  /** The configured APIs that have a model of this name in the catalogue. */
  readonly apisWith: (model: string) => readonly string[];
  /** What an API lacks that is known but cannot be called: names of variables. */
  readonly missingFor: (apiId: string) => readonly string[];
}

const DIRECT_TARGET = { weight: 1, priority: 1, requestsPerMinute: 0, tokensPerMinute: 0 };
const DIRECT_PLAN = {
  fallbacks: [],
  contextFallbacks: [],
  retries: 2,
  cacheTtlMs: 0,
};
const MAX_SHOWN_NAME = 200;
/** Plans of directly named models are made once; callers choose the names, so their number is bounded. */
const MAX_KEPT_PLANS = 1000;

export function createModelPlans(options: ModelPlansOptions): ModelPlans {
  const { settings, findApi, knownNames, apisWith, missingFor } = options;
  const patterns = readPatterns(settings);
  const aliases = readAliases(settings);
  const direct = new Map<string, ModelPlan>();
  const ofKeys = new WeakMap<Target, { readonly pool: readonly PoolKey[]; readonly targets: readonly Target[] }>();

  function notFound(model: string): AppError {
    const apiId = model.slice(0, Math.max(0, model.indexOf('/')));
    const missing = missingFor(apiId);
    const several = apiId === '' ? apisWith(model) : [];
    const nearest =
      several.length > 1
        ? `Several APIs have it: ask for ${several.map((id) => `"${id}/${model}"`).join(' or ')}, or set completions.api_order.`
        : missing.length > 0
          ? `The API "${apiId}" is known, but cannot be used yet: set ${missing.join(' and ')} in the environment of the server, or completions.apis.${apiId} in its settings.`
          : nearestModels(model, knownNames());
    return new AppError('MODEL_NOT_FOUND', { model: model.slice(0, MAX_SHOWN_NAME), nearest });
  }

  const plans: ModelPlans = {
    resolve(model) {
      const alias = aliases.get(model);
      if (alias !== undefined) return withUsableTargets(alias);
      const slash = model.indexOf('/');
      const apiId = model.slice(0, Math.max(0, slash));
      const name = model.slice(slash + 1);
      if (model.length > MAX_SHOWN_NAME) throw notFound(model);
      // Whether an API is usable may change at any time: that is asked for each call.
      const known = apiId === DEMO_API ? isDemo(name) : name !== '' && isThere(apiId);
      if (known) return withUsableTargets(direct.get(model) ?? keepDirect(model, apiId, name));
      const meant = meaningOf(model);
      if (meant === undefined) throw notFound(model);
      return plans.resolve(meant);
    },
    nameOf(model) {
      if (aliases.has(model) || model.length > MAX_SHOWN_NAME) return model;
      const slash = model.indexOf('/');
      return slash > 0 && isThere(model.slice(0, slash)) ? model : (meaningOf(model) ?? model);
    },
  };
  return plans;

  /** What a name means by a pattern, or because one API has such a model; undefined when that API cannot be called. */
  function meaningOf(model: string): string | undefined {
    const pattern = patterns.find(({ before, after }) => fits(model, before, after));
    if (pattern !== undefined) {
      const { before, after, target } = pattern;
      const meant = target.replace('*', () => model.slice(before.length, model.length - after.length));
      return isThere(meant.slice(0, meant.indexOf('/'))) && meant.length <= MAX_SHOWN_NAME ? meant : undefined;
    }
    const apis = apisWith(model);
    const api = apis.length === 1 ? apis[0] : settings.api_order.find((id) => apis.includes(id));
    return api === undefined ? undefined : `${api}/${model}`;
  }

  function keepDirect(model: string, apiId: string, name: string): ModelPlan {
    const target = { ...DIRECT_TARGET, id: model, apiId, model: name, timeouts: timeoutsOf(settings, apiId) };
    const plan = { ...DIRECT_PLAN, name: model, targets: [target] };
    if (direct.size >= MAX_KEPT_PLANS) direct.clear();
    direct.set(model, plan);
    return plan;
  }

  function withUsableTargets(plan: ModelPlan): ModelPlan {
    const { targets } = plan;
    if (targets.every(hasOneKey)) return plan;
    return { ...plan, targets: targets.filter(({ apiId }) => isThere(apiId)).flatMap(withKeys) };
  }

  /** The target once for each key of its API. The same objects each time, because their turns are counted. */
  function withKeys(target: Target): readonly Target[] {
    const pool = findApi(target.apiId)?.pool;
    if (pool === undefined) return [target];
    const known = ofKeys.get(target);
    if (known?.pool === pool) return known.targets;
    const total = pool.reduce((sum, { weight }) => sum + weight, 0);
    const targets = pool.map(
      (key): Target => ({
        ...target,
        id: `${target.id}#${key.name}`,
        key: key.name,
        keyLimits: key,
        weight: total === 0 ? 0 : (target.weight * key.weight) / total,
      }),
    );
    ofKeys.set(target, { pool, targets });
    return targets;
  }

  function hasOneKey({ apiId }: Target): boolean {
    if (apiId === DEMO_API) return true;
    const api = findApi(apiId);
    return api !== undefined && api.pool === undefined;
  }

  function isThere(apiId: string): boolean {
    return apiId === DEMO_API || findApi(apiId) !== undefined;
  }
}

/** A key of this name stands where the only key of the API stood before. */
const MAIN_KEY = 'main';

/** Where what a target stores lies: the API, or the account of one of its keys. */
export function placeOf({ apiId, key }: Pick<Target, 'apiId' | 'key'>): string {
  return key === undefined || key === MAIN_KEY ? apiId : `${apiId}#${key}`;
}

type PlanSettings = ModelPlansOptions['settings'];

/** The patterns, the longest first. */
function readPatterns({ model_patterns: patterns }: PlanSettings) {
  return Object.entries(patterns)
    .map(([pattern, target]) => {
      const star = pattern.indexOf('*');
      return { before: pattern.slice(0, star), after: pattern.slice(star + 1), target };
    })
    .sort((a, b) => b.before.length + b.after.length - (a.before.length + a.after.length));
}

function fits(model: string, before: string, after: string): boolean {
  return model.length >= before.length + after.length && model.startsWith(before) && model.endsWith(after);
}

/** 0 stands for a limit that is not set at its place. */
function timeoutsOf({ apis, timeouts }: PlanSettings, apiId: string, alias?: PlanTimeouts): PlanTimeouts {
  const api = Object.hasOwn(apis, apiId) ? apis[apiId]?.timeouts : undefined;
  const limit = (name: keyof PlanTimeouts) => alias?.[name] || api?.[name] || timeouts[name];
  return { connect: limit('connect'), first_byte: limit('first_byte'), idle: limit('idle'), total: limit('total') };
}

function readAliases(settings: PlanSettings): ReadonlyMap<string, ModelPlan> {
  return new Map(
    settings.models.map((alias) => [
      alias.name,
      {
        name: alias.name,
        targets: alias.targets.map((target) => readTarget(target, settings, alias.timeouts)),
        strategy: alias.strategy,
        fallbacks: alias.fallbacks,
        contextFallbacks: alias.context_fallbacks,
        retries: alias.retries,
        cacheTtlMs: alias.cache.ttl,
      },
    ]),
  );
}

function readTarget(
  target: CompletionsSettings['models'][number]['targets'][number],
  settings: PlanSettings,
  timeouts: PlanTimeouts,
): Target {
  const slash = target.model.indexOf('/');
  return {
    id: target.model,
    apiId: target.model.slice(0, slash),
    timeouts: timeoutsOf(settings, target.model.slice(0, slash), timeouts),
    model: target.model.slice(slash + 1),
    weight: target.weight,
    priority: target.priority,
    requestsPerMinute: target.requests_per_minute,
    tokensPerMinute: target.tokens_per_minute,
  };
}
