import { type Static, Type } from 'typebox';

/** Of one session. */
export const MAX_MCP_SERVERS = 16;
/** Of all servers of a session together, as JSON. */
export const MAX_MCP_BYTES = 64 * 1024;

const MAX_NAME = 64;
const NO_CONTROLS = '^[^\\u0000-\\u001f\\u007f]*$';
/** No program takes a zero byte in its arguments or its environment. */
const NO_ZERO = '^[^\\u0000]*$';

const name = Type.String({
  minLength: 1,
  maxLength: MAX_NAME,
  pattern: NO_CONTROLS,
  description: 'Its name for people and for the agent. Each server of a session has another one.',
});

/** The members are those of the Agent Client Protocol, so that the servers of an editor can be passed on as they are. */
export const McpServer = Type.Object({
  name,
  type: Type.Optional(
    Type.Enum(['stdio', 'http', 'sse'], { description: 'How it is reached. `stdio` unless given: a program.' }),
  ),
  command: Type.Optional(
    Type.String({
      maxLength: 4096,
      pattern: NO_ZERO,
      description: 'Of a program: a name to look up in PATH, or a path.',
    }),
  ),
  args: Type.Optional(Type.Array(Type.String({ maxLength: 8192, pattern: NO_ZERO }), { maxItems: 128 })),
  env: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ maxLength: 256, pattern: '^[A-Za-z_][A-Za-z0-9_]*$' }),
        value: Type.String({ maxLength: 16_384, pattern: NO_ZERO }),
      }),
      { maxItems: 128, description: 'Further variables of the program. They are never shown again.' },
    ),
  ),
  url: Type.Optional(Type.String({ maxLength: 4096, description: 'Of `http` and `sse`.' })),
  headers: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ maxLength: 256, pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }),
        value: Type.String({ maxLength: 16_384, pattern: '^[\\t\\u0020-\\u007e]*$' }),
      }),
      { maxItems: 64, description: 'Of `http` and `sse`, sent with each request. They are never shown again.' },
    ),
  ),
});

/** What a session tells about a server: never its arguments, variables, headers or the path of its address. */
export const ShownMcpServer = Type.Object({
  name: Type.String(),
  type: Type.Enum(['stdio', 'http', 'sse']),
  target: Type.String({ description: 'The program, or the origin of the address.' }),
});

export type McpServer = Static<typeof McpServer>;
export type ShownMcpServer = Static<typeof ShownMcpServer>;
