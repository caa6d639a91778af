import type { NewKey } from '../../accounts/contract/own-data.ts';
import type { CallDetails, CallList, CallsQuery } from '../../completions/contract/calls.ts';
import type {
  ApiList,
  IssuedKey,
  KeyChange,
  KeyInfo,
  ModelList,
  TargetList,
  UsageQuery,
  UsageReport,
} from '../../completions/contract/keys.ts';
import { auth } from './accounts.ts';
import { request } from './request.ts';

/** Keys of the completions API, what they have used, and each call. */

export type Call = CallList['data'][number];

export const listKeys = () => auth<{ keys: KeyInfo[] }>('GET', 'keys').then(({ keys }) => keys);
/** Needs a login from the last five minutes. */
export const createKey = (input: NewKey) => auth<IssuedKey>('POST', 'keys', input);
/** Needs a login from the last five minutes. */
export const rotateKey = (id: string, grace_seconds: number) =>
  auth<IssuedKey>('POST', `keys/${encodeURIComponent(id)}/rotate`, { grace_seconds });
export const changeKey = (id: string, change: KeyChange) =>
  request<KeyInfo>('PATCH', `/v1/keys/${encodeURIComponent(id)}`, { body: change });
export const removeKey = (id: string) => auth<void>('DELETE', `keys/${encodeURIComponent(id)}`);

export const readUsage = (query: UsageQuery) => request<UsageReport>('GET', '/v1/usage', { query });
export const listCalls = (query: CallsQuery) => request<CallList>('GET', '/v1/usage/calls', { query });
export const readCall = (id: string) => request<CallDetails>('GET', `/v1/usage/calls/${encodeURIComponent(id)}`);
export const listModels = () => request<ModelList>('GET', '/v1/models').then(({ data }) => data);
/** For those who see the work of others. */
export const listApis = () => request<ApiList>('GET', '/v1/apis');
export const listTargets = () => request<TargetList>('GET', '/v1/targets');
