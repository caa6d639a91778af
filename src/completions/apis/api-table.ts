import type { ModelApi } from './model-api.ts';
import { cloudApis } from './table/cloud-apis.ts';
import { dialectApis } from './table/dialect-apis.ts';
import { gatewayApis } from './table/gateway-apis.ts';
import { localApis } from './table/local-apis.ts';
import { planApis } from './table/plan-apis.ts';

/** THE TABLE of model APIs, by id (contract/completions 3). To add one, add a row to a file of `table/`. */
export const apiTable: ReadonlyMap<string, ModelApi> = new Map(
  [...cloudApis, ...dialectApis, ...gatewayApis, ...localApis, ...planApis]
    .sort((a, b) => (a.id < b.id ? -1 : 1))
    .map((api) => [api.id, api]),
);
