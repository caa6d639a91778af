import { Type } from 'typebox';

/** Spec/bridge 4.5, contract/bridge 8. */
export const ToolsInvokeParams = Type.Object({
  tool: Type.Optional(Type.String({ maxLength: 256, description: 'Needed; `message` for example.' })),
  action: Type.Optional(Type.String({ maxLength: 256, description: '`send` for example.' })),
  args: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});

export const ToolsInvokeResult = Type.Object({}, { description: 'What the tool answered, unchanged.' });
