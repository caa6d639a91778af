import { wordOf, wordsIn } from '../numbered-words.ts';
import type { Call } from './retrying-client.ts';

const TEXT = 'one two three four';
/** Each word takes a moment, so that a signal finds calls that are under way. */
const MODEL = 'demo/echo?delay=30';
/** Two seconds. */
const STREAM_WORDS = 40;
const STREAM_TEXT = Array.from({ length: STREAM_WORDS }, (_, index) => wordOf(index)).join('');

export const chat: Call = {
  name: 'chat',
  path: '/v1/chat/completions',
  body: { model: MODEL, messages: [{ role: 'user', content: TEXT }] },
  isRepeatable: false,
  problemOf(status, text) {
    if (status !== 200) return `${status} ${text}`;
    const { choices } = JSON.parse(text) as { choices: { message: { content: string } }[] };
    return choices[0]?.message.content === TEXT ? undefined : text;
  },
};

/** Begun anew only where it was refused before it began. */
export const stream: Call = {
  name: 'stream',
  path: '/v1/chat/completions',
  body: { model: 'fake/m', stream: true, messages: [{ role: 'user', content: String(STREAM_WORDS) }] },
  isRepeatable: false,
  problemOf(status, text) {
    if (status !== 200) return `${status} ${text}`;
    const isWhole = wordsIn(text).join('') === STREAM_TEXT && text.endsWith('data: [DONE]\n\n');
    return isWhole ? undefined : `it ended with ${text.slice(-200)}`;
  },
};

export const capabilities: Call = rpcCall('capabilities', 'acp.capabilities', {});

export function submit(key: string, taskPrompt: string): Call {
  return rpcCall('submit', 'app.jobs.submit', { taskPrompt, idempotencyKey: key });
}

export function get(jobId: string): Call {
  return rpcCall('get', 'app.jobs.get', { jobId });
}

/** All of them may be repeated: they change nothing, or have a key. */
function rpcCall(name: Call['name'], method: string, params: object): Call {
  return {
    name,
    path: '/acp/rpc',
    body: { jsonrpc: '2.0', id: 1, method, params },
    isRepeatable: true,
    problemOf(status, text) {
      const isRight = status === 200 && (JSON.parse(text) as { ok?: boolean }).ok === true;
      return isRight ? undefined : `${status} ${text}`;
    },
  };
}
