// An agent program: it speaks the Agent Client Protocol over its standard streams, reports its process id, and works until it
// is cancelled. With --deaf, it ignores cancellation and SIGTERM.
//   node patient-agent.ts [--deaf]
import { createInterface } from 'node:readline';

interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

const isDeaf = process.argv.includes('--deaf');
/** Functions that end the running prompt of a conversation. */
const ends = new Map<string, () => void>();
let conversations = 0;

function write(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
}

async function prompt(sessionId: string): Promise<object> {
  const content = { type: 'text', text: `process ${process.pid}` };
  const update = { sessionUpdate: 'agent_message_chunk', content };
  write({ method: 'session/update', params: { sessionId, update } });
  const { promise, resolve } = Promise.withResolvers<void>();
  ends.set(sessionId, resolve);
  await promise;
  return { stopReason: 'cancelled' };
}

function answer({ method, params }: Message): object | Promise<object> {
  if (method === 'initialize') return { protocolVersion: 1, agentCapabilities: {}, authMethods: [] };
  conversations += method === 'session/new' ? 1 : 0;
  if (method === 'session/new') return { sessionId: `conversation-${conversations}` };
  if (method === 'session/prompt') return prompt(String(params?.sessionId));
  return {};
}

if (isDeaf) process.on('SIGTERM', () => undefined);
// Keeps the process alive after its pipes are closed.
if (isDeaf) setInterval(() => undefined, 1000);
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line) as Message;
  const { id, method, params } = message;
  if (method === 'session/cancel' && !isDeaf) ends.get(String(params?.sessionId))?.();
  if (id === undefined || method === undefined) continue;
  // Not awaited, so that a running conversation does not delay others.
  void Promise.resolve(answer(message)).then((result) => write({ id, result }));
}
