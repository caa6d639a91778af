import type { Environment } from '../../platform/runtime/runtime.ts';
import type { ApiCredentials } from '../dialects/authorise-upstream.ts';
import { type CompletionsSettings, nameOfKey } from '../settings.ts';
import { apiTable } from './api-table.ts';
import type { ModelApi, PoolKey, UsableApi } from './model-api.ts';

export interface ApiSources {
  readonly settings: Pick<CompletionsSettings, 'apis'>;
  readonly environment: Environment;
  /** Whether an address is the one this program listens at: clients set `OPENAI_BASE_URL` to it. */
  readonly isOwnAddress?: ((url: URL) => boolean) | undefined;
}

/** An API of the table, or of the settings, as it stands on this machine. */
export type ResolvedApi =
  | { readonly usable: true; readonly api: UsableApi }
  /** `missing`: the environment variables that would make it usable. */
  | {
      readonly usable: false;
      readonly id: string;
      readonly missing: readonly string[];
      readonly keyVariables: readonly string[];
    };

type ApiSettings = CompletionsSettings['apis'][string];
type ReadVariable = (name: string) => string;

/** Every API of the table and of the settings, by id. */
export function resolveApis(sources: ApiSources): ReadonlyMap<string, ResolvedApi> {
  const { settings } = sources;
  const resolved = new Map<string, ResolvedApi>();
  for (const id of new Set([...apiTable.keys(), ...Object.keys(settings.apis)].sort())) {
    const own = Object.hasOwn(settings.apis, id) ? settings.apis[id] : undefined;
    resolved.set(id, resolveApi(id, own, sources));
  }
  return resolved;
}

/** The settings win over the table, and over the environment. */
function resolveApi(id: string, own: ApiSettings | undefined, sources: ApiSources): ResolvedApi {
  const { environment } = sources;
  const built = apiTable.get(id);
  const variables = own?.variables ?? {};
  const read: ReadVariable = (name) =>
    (Object.hasOwn(variables, name) ? variables[name] : undefined) ?? environment[name] ?? '';
  const table: ModelApi = built ?? { id, name: id, dialect: 'openai', baseUrl: '', keyVariables: [] };
  const row = withSettings({ ...table, baseUrl: addressFrom(table, read, sources) ?? table.baseUrl }, own);
  const { keyVariables } = row;
  const keyVariable = keyVariables.find((name) => read(name) !== '');
  const poolKeys = own?.api_keys ?? [];
  const ownKey = poolKeys[0]?.key ?? own?.api_key ?? '';
  const isBearer = ownKey === '' && keyVariable === BEARER_VARIABLE;
  const key = ownKey || (keyVariable === undefined ? '' : read(keyVariable));
  const credentials = { ...credentialsFor(row, key, read), ...(isBearer && { isBearer: true as const }) };
  const keyFrom = ownKey === '' ? keyVariable : `completions.apis.${id}.api_key${poolKeys.length > 0 ? 's' : ''}`;
  const { url, missing } = fillBaseUrl(row.baseUrl, read);
  if (url === '') return { usable: false, id, missing: ['base_url'], keyVariables };
  // An address of one's own needs no key, unless one is given.
  const needsKey = row.local !== true && row.keyVariables.length > 0 && (own?.base_url ?? '') === '';
  if (needsKey && !letsIn(credentials))
    return { usable: false, id, missing: [...missing, ...keysOf(row)], keyVariables };
  if (missing.length > 0) return { usable: false, id, missing, keyVariables };
  const configured = own !== undefined || keyVariable !== undefined || letsIn(credentials);
  const responses = own?.responses === true || servesResponses(row, url);
  const api = { ...row, baseUrl: url, credentials, configured, keyFrom, responses };
  return { usable: true, api: poolKeys.length === 0 ? api : { ...api, pool: poolOf(api, poolKeys) } };
}

function poolOf(api: UsableApi, keys: ApiSettings['api_keys']): readonly PoolKey[] {
  return keys.map((given, index) => ({
    name: nameOfKey(given, index),
    weight: given.weight,
    requestsPerMinute: given.requests_per_minute,
    tokensPerMinute: given.tokens_per_minute,
    api: { ...api, credentials: { ...api.credentials, key: given.key } },
  }));
}

/** The Responses API is OpenAI's and Azure's own: a server behind another address may not know it. */
function servesResponses({ dialect }: ModelApi, baseUrl: string): boolean {
  if ((dialect !== 'openai' && dialect !== 'azure') || !URL.canParse(baseUrl)) return false;
  const { hostname, pathname } = new URL(baseUrl);
  if (dialect === 'azure') return hostname.endsWith('.openai.azure.com') && pathname.startsWith('/openai/v1');
  return hostname === 'api.openai.com' || hostname.endsWith('.api.openai.com');
}

/** Anthropic's library sends what is in this variable as a bearer token. */
const BEARER_VARIABLE = 'ANTHROPIC_AUTH_TOKEN';

/** Every column of a row can be set. */
function withSettings(row: ModelApi, own: ApiSettings | undefined): ModelApi {
  if (own === undefined) return row;
  const headers = Object.entries(own.headers).map(([name, value]) => [name.toLowerCase(), value]);
  return {
    ...row,
    ...(own.name !== '' && { name: own.name }),
    ...(own.dialect !== '' && { dialect: own.dialect }),
    ...(own.base_url !== '' && { baseUrl: own.base_url }),
    ...(own.key_variables.length > 0 && { keyVariables: own.key_variables }),
    ...(own.local && { local: true as const }),
    ...(headers.length > 0 && { headers: { ...row.headers, ...Object.fromEntries(headers) } }),
    ...(own.refuses.length > 0 && { refuses: [...(row.refuses ?? []), ...own.refuses] }),
    ...(own.no_stream_options && { noStreamOptions: true as const }),
  };
}

/** The address that a variable gives, as the vendor's library reads it; never our own, which is meant for clients. */
function addressFrom(row: ModelApi, read: ReadVariable, { isOwnAddress }: ApiSources): string | undefined {
  for (const { name, suffix } of row.addressVariables ?? []) {
    const given = read(name).trim();
    if (given === '') continue;
    const text = (/^https?:\/\//i.test(given) ? given : `http://${given}`).replace(/\/{1,9}$/, '');
    if (!URL.canParse(text) || isOwnAddress?.(new URL(text)) === true) continue;
    return text.endsWith(suffix) ? text : `${text}${suffix}`;
  }
  return undefined;
}

function letsIn({ key, aws, googleCredentialsFile }: ApiCredentials): boolean {
  return key !== '' || aws !== undefined || googleCredentialsFile !== undefined;
}

/** One way in is enough; the first is named. */
function keysOf({ dialect, keyVariables }: ModelApi): readonly string[] {
  if (dialect === 'bedrock') return ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'];
  if (dialect === 'google-vertex') return ['GOOGLE_APPLICATION_CREDENTIALS'];
  return keyVariables.slice(0, 1);
}

function credentialsFor({ dialect }: ModelApi, key: string, read: ReadVariable): ApiCredentials {
  if (dialect === 'bedrock') {
    const accessKeyId = read('AWS_ACCESS_KEY_ID');
    const secretAccessKey = read('AWS_SECRET_ACCESS_KEY');
    const sessionToken = read('AWS_SESSION_TOKEN');
    const region = awsRegion(read);
    return {
      key,
      ...(region !== '' && { region }),
      ...(accessKeyId !== '' &&
        secretAccessKey !== '' && {
          aws: { accessKeyId, secretAccessKey, ...(sessionToken !== '' && { sessionToken }) },
        }),
    };
  }
  const file = dialect === 'google-vertex' ? read('GOOGLE_APPLICATION_CREDENTIALS') : '';
  return file === '' ? { key } : { key, googleCredentialsFile: file };
}

/** AWS's own programs know two names for it. */
function awsRegion(read: ReadVariable): string {
  return read('AWS_REGION') || read('AWS_DEFAULT_REGION');
}

function fillBaseUrl(template: string, read: ReadVariable): { url: string; missing: readonly string[] } {
  const missing = new Set<string>();
  const filled = template.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = (name === 'AWS_REGION' ? awsRegion(read) : read(name)).trim();
    if (value === '') missing.add(name);
    // Some write a host with its scheme into a variable that stands for the host alone, and a slash behind it.
    return (template.startsWith('{') ? value : value.replace(/^https?:\/\//, '')).replace(/\/{1,9}$/, '');
  });
  // Vertex has no region before the host of its one location that is none.
  return { url: filled.replace('https://global-aiplatform', 'https://aiplatform'), missing: [...missing] };
}
