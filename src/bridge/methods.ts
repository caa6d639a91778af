import { Type } from 'typebox';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import { rawJson } from '../platform/json-rpc/raw-json.ts';
import type { BridgeCaller } from './access.ts';
import { Capabilities } from './contract/capabilities.ts';

export interface MethodParts {
  readonly capabilitiesText: () => string;
}

/** THE TABLE of the method family (spec/bridge 4.3): nothing else can be called. */
export function bridgeMethods({ capabilitiesText }: MethodParts): readonly MethodRow<BridgeCaller>[] {
  return [
    {
      name: 'acp.capabilities',
      summary: 'What this bridge can do, and which agents and gateways are available right now.',
      params: Type.Object({}),
      result: Capabilities,
      handle: () => rawJson(capabilitiesText()),
    },
  ];
}
