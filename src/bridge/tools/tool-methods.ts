import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import { ToolsInvokeParams, ToolsInvokeResult } from '../contract/tools.ts';
import type { InvokeTool } from './invoke-tool.ts';

export function toolMethods(invokeTool: InvokeTool): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'app.tools.invoke',
      summary: 'Calls a tool of the gateway.',
      params: ToolsInvokeParams,
      result: ToolsInvokeResult,
      handle: ({ tool = '', action = '', args = {} }, call) => invokeTool(tool, action, args, call.signal),
    }),
  ];
}
