export type ChatPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image_url'; readonly image_url: { readonly url: string } };

export interface ChatTool {
  readonly type: 'function';
  readonly function: { readonly name: string; readonly description?: string; readonly parameters?: unknown };
}

/** A question as `/v1/chat/completions` takes it: what the console sends of it. */
export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly {
    readonly role: 'system' | 'user' | 'assistant';
    readonly content: string | readonly ChatPart[];
  }[];
  readonly temperature?: number;
  readonly max_tokens?: number;
  readonly reasoning_effort?: string;
  readonly tools?: readonly ChatTool[];
}

/** Makes the code of a request; `baseUrl` is the address that ends with `/v1`. The key is that of the environment. */
type MakeCode = (request: ChatRequest, baseUrl: string) => string;

const stringOf = (value: unknown) => JSON.stringify(value, undefined, 2);

/** The same request in other programs, by the name of the language. */
export const CODE: Readonly<Record<'curl' | 'JavaScript' | 'Python' | 'AI SDK', MakeCode>> = {
  // Within single quotes a shell changes nothing; a quote itself is written outside of them.
  curl: (request, baseUrl) => `curl -N ${baseUrl}/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${stringOf({ ...request, stream: true }).replaceAll("'", "'\\''")}'`,
  JavaScript: (request, baseUrl) => `import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.OPENAI_API_KEY,
});
const stream = await client.chat.completions.create(${stringOf({ ...request, stream: true })});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');`,
  // Python has other words for `true` and `null`: it reads the request from JSON.
  Python: (request, baseUrl) => `import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(baseUrl)},
    api_key=os.environ["OPENAI_API_KEY"],
)
request = json.loads(r"""
${stringOf(request)}
""")
stream = client.chat.completions.create(**request, stream=True)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="")`,
  'AI SDK': (request, baseUrl) => {
    const { tools = [] } = request;
    return `import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ${tools.length === 0 ? '' : 'jsonSchema, '}streamText${tools.length === 0 ? '' : ', tool'} } from 'ai';

const trestle = createOpenAICompatible({
  name: 'trestle',
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.OPENAI_API_KEY,
});
const { textStream } = streamText({
  model: trestle(${JSON.stringify(request.model)}),
${sdkMembers(request)
  .map(([name, value]) => `  ${name}: ${indented(value)},`)
  .join('\n')}
});
for await (const text of textStream) process.stdout.write(text);`;
  },
};

const indented = (text: string) => text.replaceAll('\n', '\n  ');

/** The members of the request as `streamText` names them. */
function sdkMembers(request: ChatRequest): readonly (readonly [name: string, value: string])[] {
  const { messages, temperature, max_tokens: maxTokens, reasoning_effort: effort, tools = [] } = request;
  const system = messages.find(({ role }) => role === 'system')?.content;
  const others = messages.filter(({ role }) => role !== 'system');
  const members: (readonly [string, string] | undefined)[] = [
    system === undefined ? undefined : ['system', stringOf(system)],
    ['messages', stringOf(others.map(({ role, content }) => ({ role, content: sdkContent(content) })))],
    temperature === undefined ? undefined : ['temperature', `${temperature}`],
    maxTokens === undefined ? undefined : ['maxOutputTokens', `${maxTokens}`],
    effort === undefined ? undefined : ['providerOptions', stringOf({ trestle: { reasoningEffort: effort } })],
    tools.length === 0 ? undefined : ['tools', `{\n${tools.map(sdkTool).join('\n')}\n}`],
  ];
  return members.filter((member) => member !== undefined);
}

function sdkContent(content: string | readonly ChatPart[]): unknown {
  return typeof content === 'string' ? content : content.map(sdkPart);
}

/** Images are data URLs here, which begin with their type: `data:image/png;base64,`. */
function sdkPart(part: ChatPart): unknown {
  if (part.type === 'text') return part;
  const { url } = part.image_url;
  return { type: 'file', mediaType: url.slice('data:'.length, url.indexOf(';')), data: url };
}

function sdkTool({ function: { name, description, parameters = {} } }: ChatTool): string {
  const about = description === undefined ? '' : `description: ${JSON.stringify(description)}, `;
  return `  ${JSON.stringify(name)}: tool({ ${about}inputSchema: jsonSchema(${indented(stringOf(parameters))}) }),`;
}
