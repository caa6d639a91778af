import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import {
  answers,
  type Behaviour,
  chunkOf,
  completionOf,
  diesAfter,
  refuses,
  type SeenRequest,
  startScriptedUpstream,
  streams,
  USAGE,
} from '../kit/scripted-upstream.ts';

export const KEY = 'master-key-2f6b8c1d9e';
export const MODEL = 'lab/small';
/** An alias of the same model that is asked only once. */
export const ONCE = 'once';

export interface TrestleWithModel {
  readonly program: RunningProgram;
  /** What the model API was asked, oldest first. */
  readonly requests: readonly SeenRequest[];
}

/** The real program, guarded by a key, with one configured API: `lab`, a scripted model on loopback. */
export async function startTrestleWithModel(scope: Scope): Promise<TrestleWithModel> {
  const { url, requests } = await startScriptedUpstream(scope, asTold);
  const config = join(await temporaryFolder(scope), 'trestle.yaml');
  const apis = { lab: { dialect: 'openai', base_url: url, api_key: 'lab-key-77aa' } };
  const models = [{ name: ONCE, targets: [{ model: MODEL }], retries: 0 }];
  await writeFile(config, JSON.stringify({ completions: { apis, models } }));
  const environment = { COMPLETIONS_MASTER_KEY: KEY };
  const program = await startProgram(scope, { args: ['completions', '--config', config], environment });
  return { program, requests };
}

interface Message {
  readonly role: string;
  readonly content: unknown;
}

const WEATHER_CALL = {
  id: 'call_1',
  type: 'function',
  function: { name: 'get_weather', arguments: '{"city":"Oslo"}' },
};

/** What the model does is in what the user says last. */
const asTold: Behaviour = (response, request) => {
  if (request.path.endsWith('/embeddings')) return embeds(response, request);
  const messages = (request.json.messages ?? []) as readonly Message[];
  const said = String(messages.findLast(({ role }) => role === 'user')?.content);
  return behaviour(said, messages.at(-1), request.json.stream === true)(response, request);
};

/** The vector of a text is its length. */
const embeds: Behaviour = (response, request) => {
  const { input, encoding_format: format } = request.json as {
    input: string | readonly string[];
    encoding_format?: string;
  };
  const data = [input].flat().map((text, index) => {
    const vector = Float32Array.of(text.length, 0.5);
    const embedding = format === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
    return { object: 'embedding', index, embedding };
  });
  return answers({ object: 'list', data, model: 'small', usage: { prompt_tokens: 3, total_tokens: 3 } })(
    response,
    request,
  );
};

function behaviour(said: string, last: Message | undefined, streamed: boolean): Behaviour {
  if (said.includes('BAD')) return refuses(400, 'The lab does not like this.');
  if (said.includes('BUSY')) return refuses(429, 'The lab is busy.', { 'retry-after': '1' });
  if (said.includes('WEATHER') && last?.role !== 'tool') return callsTool(streamed);
  const pieces = last?.role === 'tool' ? ['The tool says: ', String(last.content)] : ['You ', 'said: ', said];
  const thinking = said.includes('THINK') ? { reasoning_content: 'A thought.' } : {};
  if (!streamed) {
    const message = { role: 'assistant', content: pieces.join(''), ...thinking };
    return answers(completionOf('', { choices: [{ index: 0, message, finish_reason: 'stop' }] }));
  }
  const spoken = [chunkOf({ role: 'assistant', ...thinking }), ...pieces.map((content) => chunkOf({ content }))];
  return said.includes('DIE') ? diesAfter(spoken.map(event)) : streams(ended(spoken, 'stop'));
}

function callsTool(streamed: boolean): Behaviour {
  const message = { role: 'assistant', content: 'I look.', tool_calls: [WEATHER_CALL] };
  if (!streamed) return answers(completionOf('', { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] }));
  const { name, arguments: text } = WEATHER_CALL.function;
  return streams(
    ended(
      [
        chunkOf({ role: 'assistant', content: 'I look.' }),
        chunkOf({
          tool_calls: [{ index: 0, id: WEATHER_CALL.id, type: 'function', function: { name, arguments: '' } }],
        }),
        chunkOf({ tool_calls: [{ index: 0, function: { arguments: text.slice(0, 5) } }] }),
        chunkOf({ tool_calls: [{ index: 0, function: { arguments: text.slice(5) } }] }),
      ],
      'tool_calls',
    ),
  );
}

function ended(chunks: readonly object[], finishReason: string): string[] {
  const usage = { ...chunkOf({}), choices: [], usage: USAGE };
  return [...[...chunks, chunkOf({}, finishReason), usage].map(event), 'data: [DONE]\n\n'];
}

function event(chunk: object): string {
  return `data: ${JSON.stringify(chunk)}\n\n`;
}
