import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setting } from '../../platform/config/setting.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import { isOperators, isPersons } from '../principal.ts';

/** A program as it is configured. */
export interface AgentProgram {
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the few variables that every agent gets. */
  readonly environment: Readonly<Record<string, string>>;
  /** The preset that it is. Undefined: another program. */
  readonly preset?: string | undefined;
}

/** How a program calls our models. */
export interface ModelAccess {
  /** Of this program, as the agent reaches it; without a path. */
  readonly url: string;
  /** Charges the calls to the owner of the work. */
  readonly key: string;
  /** Begins a turn; the result ends it, and returns what its calls cost in USD. Undefined: it is not known, or nothing was called. */
  meter?(): () => number | undefined;
  /** From now on, model calls of the program that name no trace are part of this one. */
  follow?(trace: TraceContext | undefined): void;
  /** The program has ended: the key stops working. */
  end(): void;
}

/** The models of ours that agents get. */
export interface OfferedModels {
  readonly use: 'auto' | 'ours' | 'own';
  /** The model of a turn that names none. Empty: there is none. */
  readonly model: string;
  /** All that can be chosen, with `model`. */
  readonly names: readonly string[];
  /** The home of the operator, where agents keep their logins. */
  readonly homeDirectory: string;
}

/** `folder`: the path, for the program, of the folder that its `files` are in. */
type Given = Pick<ModelAccess, 'url' | 'key'> & Pick<OfferedModels, 'model' | 'names'> & { readonly folder: string };

/** A program with what it needs to call our models. */
interface EquippedProgram extends AgentProgram {
  /** Its settings, by name, in a folder of ours: for agents that read none from variables. They hold no key. */
  readonly files: Readonly<Record<string, string>>;
}

/** How one agent is given a model, so that nobody has to log in. */
interface ModelRow {
  /** Files of the home that show that the operator has a login or settings for a model. */
  readonly logins: readonly string[];
  /** Variables that speak of a model: an operator who sets one for the agent has chosen. */
  readonly variables: RegExp;
  give(
    given: Given,
  ): Pick<AgentProgram, 'environment'> & Partial<Pick<AgentProgram, 'args'> & Pick<EquippedProgram, 'files'>>;
}

const KEY = 'TRESTLE_MODEL_KEY';

/** By id of a preset. Agents without a row get the usual variables of OpenAI and Anthropic. */
const ROWS: Readonly<Record<string, ModelRow>> = {
  codex: {
    logins: ['.codex/auth.json', '.codex/config.toml'],
    variables: /^(?:CODEX|OPENAI)_/,
    give: ({ url, key, model }) => ({
      args: codexOptions({
        model,
        model_provider: 'trestle',
        'model_providers.trestle.name': 'Trestle',
        'model_providers.trestle.base_url': `${url}/v1`,
        'model_providers.trestle.env_key': KEY,
        'model_providers.trestle.wire_api': 'responses',
        'model_providers.trestle.supports_websockets': false,
        check_for_update_on_startup: false,
        'analytics.enabled': false,
      }),
      environment: { [KEY]: key },
    }),
  },
  opencode: {
    logins: [
      '.local/share/opencode/auth.json',
      ...['opencode.json', 'opencode.jsonc', 'config.json'].map((name) => `.config/opencode/${name}`),
    ],
    variables: /^OPENCODE_(?:CONFIG|AUTH)|_API_KEY$/,
    give: (given) => ({ environment: openCodeVariables('OPENCODE', given) }),
  },
  // Made of OpenCode, with other names.
  kilo: {
    logins: [
      '.local/share/kilo/auth.json',
      ...['kilo.json', 'kilo.jsonc', 'opencode.json', 'config.json'].map((name) => `.config/kilo/${name}`),
    ],
    variables: /^KILO_(?:CONFIG|AUTH|API)|_API_KEY$/,
    give: (given) => ({ environment: openCodeVariables('KILO', given) }),
  },
  gemini: {
    logins: ['.gemini/oauth_creds.json', '.gemini/settings.json', '.gemini/.env'],
    variables: /^(?:GEMINI|GOOGLE)_/,
    give: ({ url, key, model }) => ({
      environment: {
        GEMINI_API_KEY: key,
        GOOGLE_GEMINI_BASE_URL: url,
        GEMINI_MODEL: model,
        GEMINI_CLI_TRUST_WORKSPACE: 'true',
        GEMINI_TELEMETRY_ENABLED: 'false',
      },
    }),
  },
  claude: {
    logins: ['.claude/.credentials.json', '.claude/settings.json'],
    variables: /^(?:ANTHROPIC|CLAUDE|AWS)_/,
    give: ({ url, key, model }) => ({
      environment: {
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_API_KEY: key,
        ANTHROPIC_MODEL: model,
        ...Object.fromEntries(
          ['OPUS', 'SONNET', 'HAIKU'].map((size) => [`ANTHROPIC_DEFAULT_${size}_MODEL`, model] as const),
        ),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_AUTOUPDATER: '1',
        DISABLE_TELEMETRY: '1',
        // Tools of MCP servers are shown to the model from the beginning: only models of Anthropic can load them later.
        ENABLE_TOOL_SEARCH: 'false',
      },
    }),
  },
  qwen: {
    logins: ['.qwen/oauth_creds.json', '.qwen/settings.json', '.qwen/.env'],
    variables: /^(?:OPENAI|QWEN(?!_CODE_LEGACY_)|DASHSCOPE)_/,
    give: ({ url, key, model }) => ({
      args: ['--auth-type', 'openai'],
      environment: { OPENAI_API_KEY: key, OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: model },
    }),
  },
  kimi: {
    logins: ['.kimi-code/config.toml', '.kimi-code/credentials', '.kimi/config.toml'],
    variables: /^KIMI_/,
    give: ({ url, key, model }) => ({
      environment: {
        KIMI_MODEL_NAME: model,
        KIMI_MODEL_API_KEY: key,
        KIMI_MODEL_BASE_URL: `${url}/v1`,
        KIMI_MODEL_PROVIDER_TYPE: 'openai',
        KIMI_CODE_NO_AUTO_UPDATE: '1',
      },
    }),
  },
  copilot: {
    logins: ['.copilot/config.json'],
    variables: /^(?:COPILOT|GH|GITHUB)_/,
    give: ({ url, key, model }) => ({
      environment: {
        COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
        COPILOT_PROVIDER_TYPE: 'openai',
        COPILOT_PROVIDER_API_KEY: key,
        COPILOT_MODEL: model,
        COPILOT_OFFLINE: 'true',
      },
    }),
  },
  // Its adapter makes `.pi` without any login.
  pi: {
    logins: ['.pi/agent/auth.json', '.pi/agent/models.json'],
    variables: /^PI_CODING_AGENT_DIR$|_API_KEY$/,
    give: piSettings,
  },
};

/** Pi expands the variable itself. Keys of other APIs would show their models, which our key does not open. */
function piSettings({ url, key, model, names, folder }: Given) {
  const models = [...new Set([model, ...names])].map((id) => ({ id, input: ['text', 'image'] }));
  const trestle = { baseUrl: `${url}/v1`, api: 'openai-completions', apiKey: `$${KEY}`, models };
  return {
    files: {
      'models.json': JSON.stringify({ providers: { trestle } }),
      'settings.json': JSON.stringify({ defaultProvider: 'trestle', defaultModel: model, quietStartup: true }),
    },
    environment: { [KEY]: key, PI_CODING_AGENT_DIR: folder, OPENAI_API_KEY: '', ANTHROPIC_API_KEY: '' },
  };
}

/** Values are TOML; JSON's strings and booleans are TOML as well. */
function codexOptions(options: Readonly<Record<string, string | boolean>>): readonly string[] {
  return Object.entries(options).flatMap(([name, value]) => ['-c', `${name}=${JSON.stringify(value)}`]);
}

function openCodeVariables(prefix: string, { url, key, model, names }: Given): Readonly<Record<string, string>> {
  return {
    [KEY]: key,
    [`${prefix}_CONFIG_CONTENT`]: openCodeSettings(`${url}/v1`, model, names),
    [`${prefix}_DISABLE_AUTOUPDATE`]: '1',
    [`${prefix}_DISABLE_MODELS_FETCH`]: '1',
  };
}

/** Its tools ask first, so that the bridge decides about permissions. The key is a variable, and not in the text. */
function openCodeSettings(baseURL: string, model: string, names: readonly string[]): string {
  const limit = { context: 128_000, output: 16_000 };
  // Levels of thinking that people may choose. Without the first one, OpenCode would choose another by itself.
  const efforts = ['low', 'medium', 'high'].map((reasoningEffort) => [reasoningEffort, { reasoningEffort }]);
  const variants = { default: {}, ...Object.fromEntries(efforts) };
  const models = Object.fromEntries(
    [model, ...names].map((name) => [name, { tool_call: true, attachment: true, variants, limit }]),
  );
  const options = { baseURL, apiKey: `{env:${KEY}}` };
  return JSON.stringify({
    autoupdate: false,
    share: 'disabled',
    model: `trestle/${model}`,
    small_model: `trestle/${model}`,
    enabled_providers: ['trestle'],
    provider: { trestle: { npm: '@ai-sdk/openai-compatible', name: 'Trestle', options, models } },
    permission: { bash: 'ask', edit: 'ask' },
  });
}

function rowOf({ preset }: AgentProgram): ModelRow | undefined {
  return preset !== undefined && Object.hasOwn(ROWS, preset) ? ROWS[preset] : undefined;
}

const DEMO = /^demo\//;

/**
 * Whether a program is given our models. People, and others without the home of the operator, have no login of their own. The
 * operator's agents keep the login or the settings that they have, and nobody gets the model that only repeats unasked.
 */
export function getsOurModels(
  program: AgentProgram,
  owner: string | undefined,
  isFenced: boolean,
  offered: OfferedModels | undefined,
): boolean {
  const use = offered?.use ?? 'auto';
  if (use === 'own') return false;
  if (isPersons(owner)) return true;
  const row = rowOf(program);
  if (row === undefined || offered === undefined || offered.model === '') return false;
  if (Object.keys(program.environment).some((name) => row.variables.test(name))) return false;
  if (use === 'ours') return true;
  if (DEMO.test(offered.model)) return false;
  const hasOperatorsHome = owner === undefined || isOperators(owner) || !isFenced;
  return !hasOperatorsHome || !row.logins.some((file) => existsSync(join(offered.homeDirectory, file)));
}

/** A program with what it needs to call our models. An API that the settings of the agent speak of is left to them. */
export function withOurModels(
  program: AgentProgram,
  access: ModelAccess | undefined,
  offered: OfferedModels | undefined,
  folder: string,
): EquippedProgram {
  if (access === undefined) return { ...program, files: {} };
  const { url, key } = access;
  const own = Object.keys(program.environment);
  const speaksOf = (api: string) => own.some((name) => name.startsWith(`${api}_`));
  const usual = {
    ...(!speaksOf('OPENAI') && { OPENAI_API_KEY: key, OPENAI_BASE_URL: `${url}/v1` }),
    ...(!speaksOf('ANTHROPIC') && { ANTHROPIC_API_KEY: key, ANTHROPIC_BASE_URL: url }),
  };
  const row = rowOf(program);
  const isTaken = row === undefined || own.some((name) => row.variables.test(name));
  const given =
    isTaken || offered === undefined || offered.model === '' ? undefined : row.give({ ...offered, ...access, folder });
  return {
    ...program,
    args: [...program.args, ...unlessGiven(program.args, given?.args ?? [])],
    environment: { ...usual, ...given?.environment, ...program.environment },
    files: given?.files ?? {},
  };
}

/** Agents may refuse an option that they get twice; `-c` of Codex is one of a list. */
function unlessGiven(own: readonly string[], more: readonly string[]): readonly string[] {
  return more.some((arg) => arg.startsWith('--') && own.includes(arg)) ? [] : more;
}

/** The part of `agents.*` about programs and their models. */
export const agentProgramSettings = {
  registry: setting.text({
    default: '',
    pattern: '^$|^(/|https?://)[^\\s]{1,2000}$',
    expects: 'an absolute path, or an address that begins with https:// or http://',
    description:
      'A file or URL with more agents for `trestle agents install`, in the format of https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json. Agents that are npm packages can be installed. If the registry cannot be read, the last valid one is used. Empty: none.',
  }),
  max_processes: setting.integer({
    default: 16,
    minimum: 1,
    maximum: 1000,
    description:
      'Agent processes that run at the same time. Each owner of sessions has a separate process per agent. One user or team has at most three quarters of them.',
  }),
  models: setting.choice(['auto', 'ours', 'own'], {
    default: 'auto',
    description:
      'Whose models agents use. `ours`: those of the completions service of this program, without a login and charged to the owner of the session. `own`: those of the agent’s own login. `auto`: `ours` for users, service accounts and teams, and for agents that have neither a login nor settings of their own.',
  }),
  model: setting.text({
    default: '',
    description:
      'The model that agents with `ours` get: an alias, or <api>/<model>. Empty: the model of the built-in agent; if that is a demo model, a suggested model of the first model API that has a key.',
  }),
};
