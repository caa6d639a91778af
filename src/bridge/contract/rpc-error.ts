import { Type } from 'typebox';

/** Every refusal of the bridge, on HTTP and in answers (contract/bridge 2). */
export const RpcError = Type.Object({
  jsonrpc: Type.Literal('2.0'),
  id: Type.Union([Type.String(), Type.Number(), Type.Null()]),
  error: Type.Object({
    code: Type.Integer(),
    message: Type.String(),
    data: Type.Object({ code: Type.String({ description: 'A stable word such as UNAUTHORIZED.' }) }),
  }),
  ok: Type.Literal(false),
  type: Type.Literal('res'),
  payload: Type.Null(),
  seq: Type.Integer(),
});
