import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { ChatRequest } from '../contract/chat.ts';
import { echo } from './demo-echo.ts';

/** The demo API's files and batches, in memory, so that both can be tried without a key. */
export interface DemoStore {
  upload(file: { readonly name: string; readonly purpose: string; readonly bytes: Buffer }): object;
  file(id: string): object | undefined;
  content(id: string): Buffer | undefined;
  deleteFile(id: string): object | undefined;
  /** Runs all lines immediately. Undefined: there is no such file. */
  createBatch(request: DemoBatchRequest): object | undefined;
  batch(id: string): object | undefined;
}

interface DemoBatchRequest {
  readonly input_file_id: string;
  readonly endpoint: string;
  readonly completion_window: string;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** The largest file. */
export const MAX_DEMO_FILE_BYTES = 1024 * 1024;
/** The oldest go when there are more. */
const MAX_OBJECTS = 200;
const MAX_BYTES = 16 * 1024 * 1024;
const CHAT = '/v1/chat/completions';

export function createDemoStore(makeId: MakeId, now: () => number): DemoStore {
  const files = new Map<string, { readonly info: object; readonly bytes: Buffer }>();
  const batches = new Map<string, object>();
  let size = 0;

  function removeFile(id: string): void {
    size -= files.get(id)?.bytes.length ?? 0;
    files.delete(id);
  }

  function keepFile(name: string, purpose: string, bytes: Buffer): { readonly id: string } {
    const id = makeId('file-');
    const created_at = Math.floor(now() / 1000);
    const info = { id, object: 'file', bytes: bytes.length, created_at, filename: name, purpose, status: 'processed' };
    files.set(id, { info, bytes });
    size += bytes.length;
    for (const oldest of files.keys()) {
      if ((files.size <= MAX_OBJECTS && size <= MAX_BYTES) || oldest === id) break;
      removeFile(oldest);
    }
    return info;
  }

  function answer(line: string): string {
    const { custom_id, body } = JSON.parse(line) as { custom_id?: string; body: ChatRequest };
    const { pieces, finishReason, usage } = echo(body);
    const message = { role: 'assistant', content: pieces.join('') };
    const completion = {
      id: makeId('chatcmpl-'),
      object: 'chat.completion',
      created: Math.floor(now() / 1000),
      model: 'echo',
      choices: [{ index: 0, message, finish_reason: finishReason }],
      usage,
    };
    const response = { status_code: 200, request_id: makeId('req-'), body: completion };
    return JSON.stringify({ id: makeId('batch_req_'), custom_id, response, error: null });
  }

  return {
    upload: ({ name, purpose, bytes }) => keepFile(name, purpose, bytes),
    file: (id) => files.get(id)?.info,
    content: (id) => files.get(id)?.bytes,
    deleteFile(id) {
      if (!files.has(id)) return undefined;
      removeFile(id);
      return { id, object: 'file', deleted: true };
    },
    createBatch(request) {
      const input = files.get(request.input_file_id);
      if (input === undefined) return undefined;
      const lines = input.bytes.toString('utf8').split('\n').filter(Boolean);
      const isChat = request.endpoint === CHAT;
      const output = isChat
        ? keepFile('output.jsonl', 'batch_output', Buffer.from(lines.map(answer).join('\n')))
        : undefined;
      const at = Math.floor(now() / 1000);
      const id = makeId('batch_');
      const counts = { total: lines.length, completed: isChat ? lines.length : 0, failed: isChat ? 0 : lines.length };
      const batch = {
        id,
        object: 'batch',
        ...request,
        status: isChat ? 'completed' : 'failed',
        output_file_id: output?.id ?? null,
        error_file_id: null,
        created_at: at,
        ...(isChat ? { completed_at: at } : { failed_at: at }),
        request_counts: counts,
      };
      batches.set(id, batch);
      for (const oldest of batches.keys()) {
        if (batches.size <= MAX_OBJECTS) break;
        batches.delete(oldest);
      }
      return batch;
    },
    batch: (id) => batches.get(id),
  };
}
