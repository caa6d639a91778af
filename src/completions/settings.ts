import type { Static } from 'typebox';
import { type Complaint, nearestName } from '../platform/config/problem.ts';
import { setting } from '../platform/config/setting.ts';
import { joinPath } from '../platform/config/setting-declaration.ts';
import {
  apiBudgets,
  checkExports,
  checkGuardrails,
  exports,
  guardrails,
  linkAllow,
  promptCache,
  sharedCache,
  storageAllow,
  tagBudgets,
  unitPrices,
} from './content-settings.ts';

const DIALECTS = ['openai', 'anthropic', 'google', 'google-vertex', 'bedrock', 'azure', 'cohere'] as const;
const MODEL = { pattern: '^[^\\s/]+(/[^\\s/]+)*$', expects: 'the name of an alias, or <api>/<model>' };
const MODEL_OF_API = { pattern: '^[^\\s/]+(/[^\\s/]+)+$', expects: 'a model of an API, as <api>/<model>' };

const target = setting.group('', {
  model: setting.text({ ...MODEL_OF_API, description: 'The model, as `<api>/<model>`.' }),
  weight: setting.integer({
    default: 1,
    minimum: 0,
    maximum: 1000,
    description: 'Its share among targets of one priority.',
  }),
  priority: setting.integer({
    default: 1,
    minimum: 1,
    maximum: 100,
    description: 'Targets with a lower number are used first; higher ones when those fail.',
  }),
  requests_per_minute: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000_000,
    description: 'Requests per minute that it may receive. 0: no limit.',
  }),
  tokens_per_minute: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000_000_000,
    description: 'Tokens per minute that it may receive. 0: no limit.',
  }),
});

const TIMEOUTS = [
  ['connect', '5s', '10m', 'To connect.'],
  ['first_byte', '10m', '1d', 'For the first byte of a whole response, or the first event of a stream.'],
  ['idle', '5m', '1d', 'Between two pieces of a response.'],
  ['total', '1h', '7d', 'For all attempts and the whole response.'],
] as const;

type TimeoutName = (typeof TIMEOUTS)[number][0];

/** The limits for all calls, or with `inherits` those of one API or alias. */
function timeouts(description: string, inherits: string) {
  const members = TIMEOUTS.map(([name, usual, maximum, what]) => [
    name,
    setting.duration({
      default: inherits === '' ? usual : '0s',
      minimum: inherits === '' ? '10ms' : '0s',
      maximum,
      description: inherits === '' ? what : `${what} 0s: ${inherits}.`,
    }),
  ]);
  return setting.group(
    description,
    Object.fromEntries(members) as Record<TimeoutName, ReturnType<typeof setting.duration>>,
  );
}

/** The price of one kind of token. -1: not given. */
function price(where: string, otherwise: string) {
  return setting.number({
    default: -1,
    minimum: -1,
    maximum: 1,
    description: `USD for one token ${where}. -1: ${otherwise}.`,
  });
}

const tokenPrices = {
  cache_read: price('that is read from a cache', 'as `input`'),
  cache_write: price('that is written into a cache for five minutes', 'as `input`'),
  cache_write_1h: price('that is written into a cache for an hour', 'as `cache_write`'),
  audio_input: price('of audio in a prompt', 'as `input`'),
  image_input: price('of an image in a prompt', 'as `input`'),
  audio_output: price('of audio in an answer', 'as `output`'),
  reasoning: price('of reasoning', 'as `output`'),
};

export const completionsSettings = setting.group('One chat-completion API in front of many model APIs.', {
  master_key: setting.token({
    default: '',
    env: 'COMPLETIONS_MASTER_KEY',
    reload: true,
    description:
      'The key with all rights, such as issuing other keys. If no key is configured, the API is open, on loopback only.',
  }),
  allowed_origins: setting.list(setting.origin({}), {
    reload: true,
    description:
      'Web origins whose pages may call the API with a key, spelled exactly. Our own origin is always allowed.',
  }),
  strict_params: setting.flag({
    default: false,
    description:
      'Refuse requests with parameters that the model API does not support, instead of dropping these and naming them in `x-dropped-params`.',
  }),
  timeouts: timeouts('How long to wait for model APIs. A request may shorten it with `x-timeout-ms`.', ''),
  max_request_bytes: setting.integer({
    default: 64 * 1024 * 1024,
    minimum: 1024,
    maximum: 1024 * 1024 * 1024,
    description: 'The largest request body, in bytes. Messages contain their attachments.',
  }),
  max_event_bytes: setting.integer({
    default: 32 * 1024 * 1024,
    minimum: 1024,
    maximum: 256 * 1024 * 1024,
    description: 'The largest event in a stream of a model API, in bytes. One event may contain a whole image.',
  }),
  link_allow: linkAllow,
  storage_allow: storageAllow,
  alerts: setting.group('Where to send alerts when 50, 80 or 100 % of a budget is spent. The log always gets a line.', {
    url: setting.url({
      default: '',
      schemes: ['https', 'http'],
      description: 'An address that gets a POST with JSON for each alert. Empty: none.',
    }),
    token: setting.token({
      default: '',
      description: 'Sent to that address as `Authorization: Bearer`. Empty: none.',
    }),
  }),
  usage_cost: setting.flag({
    default: false,
    description:
      'Add `cost`, in USD, to the `usage` of translated responses under `/v1`, if the price of the model is known. Responses that pass as bytes do not change.',
  }),
  guardrails,
  exports,
  tag_budgets: tagBudgets,
  api_budgets: apiBudgets,
  prompt_cache: promptCache,
  cache: sharedCache,
  store_content: setting.flag({ default: false, description: 'Store prompts and answers with the usage records.' }),
  apis: setting.record(
    setting.group('', {
      dialect: setting.choice(DIALECTS, {
        default: '',
        description: 'The dialect that it speaks. Empty: as in the built-in table, otherwise `openai`.',
      }),
      base_url: setting.url({
        schemes: ['http', 'https'],
        default: '',
        description: 'Everything before the path of the operation. Empty: as in the built-in table.',
      }),
      api_key: setting.token({
        default: '',
        reload: true,
        description: 'Its key. Empty: from the environment, or none.',
      }),
      api_keys: setting.list(
        setting.group('', {
          name: setting.text({
            default: '',
            pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$',
            expects: 'a name of letters, digits, dots and dashes',
            description: 'Its name, for logs and `/v1/targets`. Empty: its place in the list.',
          }),
          key: setting.token({ description: 'The key.' }),
          weight: setting.integer({
            default: 1,
            minimum: 0,
            maximum: 1000,
            description: 'Its share of the calls. 0: only when the others fail.',
          }),
          requests_per_minute: setting.integer({
            default: 0,
            minimum: 0,
            maximum: 1_000_000_000,
            description: 'Requests per minute that it may receive, for all models. 0: no limit.',
          }),
          tokens_per_minute: setting.integer({
            default: 0,
            minimum: 0,
            maximum: 1_000_000_000_000,
            description: 'Tokens per minute that it may receive, for all models. 0: no limit.',
          }),
        }),
        {
          reload: true,
          description:
            'Several keys instead of `api_key`: they share the calls, and a key that is refused or out of quota is skipped.',
        },
      ),
      variables: setting.record(setting.text({ secret: 'maybe', reload: true }), {
        keyPattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$',
        keyExpects: 'names of environment variables',
        reload: true,
        description:
          'Other values that it needs, by the name of their environment variable: `AWS_REGION`, `AZURE_RESOURCE_NAME`, `GOOGLE_VERTEX_PROJECT`, ... They take precedence over the environment.',
      }),
      name: setting.text({
        default: '',
        description: 'The name to show. Empty: as in the built-in table, otherwise its id.',
      }),
      key_variables: setting.list(
        setting.text({ pattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$', expects: 'the name of an environment variable' }),
        {
          description:
            'Environment variables that may hold its key; the first one that is set counts. Empty: as in the built-in table.',
        },
      ),
      local: setting.flag({ default: false, description: 'It is usable without a key.' }),
      headers: setting.record(setting.text({ secret: 'maybe' }), {
        keyPattern: '^[A-Za-z0-9-]{1,64}$',
        keyExpects: 'names of headers',
        description: 'Headers that are sent with every request, in addition to those of the built-in table.',
      }),
      refuses: setting.list(setting.text({ pattern: '^[a-z_]{1,64}$', expects: 'the name of a field' }), {
        description: "Fields of OpenAI's request that it refuses, in addition to those of the built-in table.",
      }),
      no_stream_options: setting.flag({
        default: false,
        description: 'It does not support `stream_options`, so its streams may come without usage.',
      }),
      responses: setting.flag({
        default: false,
        description:
          'It serves `/responses` itself, so requests of `/v1/responses` pass to it unchanged. Not needed for OpenAI and Azure at their own addresses; needed for another address, such as a proxy in front of OpenAI.',
      }),
      timeouts: timeouts('How long to wait for this API.', 'as for all APIs'),
    }),
    {
      keyPattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
      keyExpects: 'names of letters, digits, dots and dashes',
      description: 'Model APIs that add to the built-in table, or override its rows.',
    },
  ),
  models: setting.list(
    setting.group('', {
      name: setting.text({ ...MODEL, description: 'Name of the alias, which callers use as the model.' }),
      targets: setting.list(target, { minimum: 1, description: 'The models behind the alias.' }),
      strategy: setting.choice(['weighted', 'least_busy', 'fastest', 'cheapest'], {
        default: 'weighted',
        description:
          'Which of the targets with the lowest `priority` is tried first. `weighted`: in turn, by weight. `least_busy`: the one with the fewest calls in progress. `fastest`: the faster of two picked at random (by a moving average of the time to the first output; a target without a measurement comes first). `cheapest`: the one with the lowest price.',
      }),
      fallbacks: setting.list(setting.text(MODEL), {
        description: 'Aliases or models to try in order when every target has failed.',
      }),
      context_fallbacks: setting.list(setting.text(MODEL), {
        description: 'Aliases or models to try when the prompt is too long.',
      }),
      retries: setting.integer({
        default: 2,
        minimum: 0,
        maximum: 10,
        description: 'Repeated attempts on one target.',
      }),
      timeouts: timeouts('How long to wait for the targets.', 'as for the API'),
      cache: setting.group('Cache of answers to equal requests.', {
        ttl: setting.duration({
          default: '0s',
          minimum: '0s',
          maximum: '30d',
          description: 'How long a response is reused for the same request of the same key. 0s: never.',
        }),
      }),
    }),
    { description: 'Aliases: your own names for one or several models.' },
  ),
  model_patterns: setting.record(
    setting.text({
      pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[^*]{0,200}\\*?[^*]{0,200}$',
      expects: '<api>/<model>, with at most one *',
    }),
    {
      keyPattern: '^[^*]{0,200}\\*[^*]{0,200}$',
      keyExpects: 'names with one *',
      description:
        'Patterns for names that are neither an alias nor <api>/<model>, and the models that they stand for: `"claude-*": "anthropic/claude-*"`. The longest pattern that matches counts.',
    },
  ),
  api_order: setting.list(setting.text({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', expects: 'the id of an API' }), {
    description:
      'Which API a name without one, such as `gpt-4o`, means if several configured APIs have that model: the first of them in this list. Empty: such a name is refused.',
  }),
  files_api: setting.text({
    default: '',
    pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
    expects: 'the id of an API',
    description:
      'The API that stores files uploaded without the header `x-model-api`. Empty: `openai` if it can be called, otherwise the demo API.',
  }),
  catalog_url: setting.url({
    default: '',
    schemes: ['https', 'http'],
    description:
      'URL from which sizes, abilities and prices of models are read every day, in the format of https://models.dev/api.json. If it cannot be read, the last valid catalogue stays in use. Empty: only `trestle models update` reads a catalogue.',
  }),
  prices: setting.record(
    setting.group('', {
      input: setting.number({ default: 0, minimum: 0, maximum: 1, description: 'USD for one token of a prompt.' }),
      output: setting.number({ default: 0, minimum: 0, maximum: 1, description: 'USD for one token of an answer.' }),
      ...tokenPrices,
      ...unitPrices,
      batch_input: price('in the prompt of a batch', 'the price outside a batch'),
      batch_output: price('in the answer of a batch', 'the price outside a batch'),
      tiers: setting.list(
        setting.group('', {
          above: setting.integer({
            minimum: 1,
            maximum: 1_000_000_000,
            description: 'The tier applies to calls whose prompt has more tokens than this.',
          }),
          input: setting.number({ minimum: 0, maximum: 1, description: 'USD for one token of a prompt.' }),
          output: setting.number({ minimum: 0, maximum: 1, description: 'USD for one token of an answer.' }),
          ...tokenPrices,
        }),
        { description: 'Prices of long prompts.' },
      ),
    }),
    {
      keyPattern: MODEL_OF_API.pattern,
      keyExpects: 'models, as <api>/<model>',
      description: 'Prices that override the built-in table.',
    },
  ),
});

export type CompletionsSettings = Static<typeof completionsSettings>;

/** What must hold between the settings of completions. */
export function checkCompletionsSettings({ models, apis, ...rest }: CompletionsSettings): readonly Complaint[] {
  const names = models.map(({ name }) => name);
  const ofKeys = Object.entries(apis).flatMap(([id, api]) => checkKeys(joinPath('completions.apis', id), api));
  const ofModels = models.flatMap(({ name, fallbacks, context_fallbacks: contextFallbacks }, index) => {
    const path = joinPath('completions.models', index);
    const twice = {
      path: `${path}.name`,
      wrong: `the alias "${name}" is there twice`,
      right: 'give each its own name',
    };
    return [
      ...(names.indexOf(name) === index ? [] : [twice]),
      ...checkFallbacks(`${path}.fallbacks`, fallbacks, name, names),
      ...checkFallbacks(`${path}.context_fallbacks`, contextFallbacks, name, names),
    ];
  });
  return [...ofKeys, ...ofModels, ...checkGuardrails(rest.guardrails), ...checkExports(rest.exports)];
}

/** The name of a key of a pool: its own, else its place. */
export function nameOfKey({ name }: { readonly name: string }, index: number): string {
  return name === '' ? String(index + 1) : name;
}

function checkKeys(path: string, { api_key: key, api_keys: keys }: CompletionsSettings['apis'][string]): Complaint[] {
  if (keys.length === 0) return [];
  const names = keys.map(nameOfKey);
  const twice = names.findIndex((name, index) => names.indexOf(name) !== index);
  return [
    ...(key === ''
      ? []
      : [{ path: `${path}.api_key`, wrong: 'api_keys is set as well', right: 'put this key into api_keys' }]),
    ...(twice === -1
      ? []
      : [
          {
            path: `${joinPath(`${path}.api_keys`, twice)}.name`,
            wrong: `the key "${names[twice]}" is there twice`,
            right: 'give each its own name',
          },
        ]),
  ];
}

function checkFallbacks(
  path: string,
  fallbacks: readonly string[],
  own: string,
  names: readonly string[],
): readonly Complaint[] {
  return fallbacks.flatMap((fallback, index): readonly Complaint[] => {
    const place = joinPath(path, index);
    if (fallback === own) return [{ path: place, wrong: 'the alias falls back to itself', right: 'name another one' }];
    if (fallback.includes('/') || names.includes(fallback)) return [];
    const near = nearestName(fallback, names);
    const right = near === undefined ? 'name an alias, or a model as <api>/<model>' : `did you mean "${near}"?`;
    return [{ path: place, wrong: `there is no alias "${fallback}"`, right }];
  });
}
