/** One call over HTTP with streaming: its updates as they come, and its answer. */
export interface StreamedCall {
  readonly updates: readonly Readonly<Record<string, unknown>>[];
  readonly answer: Promise<RpcAnswer>;
  /** Resolves with the first update that fits, also if it came before. */
  until(fits: (update: Readonly<Record<string, unknown>>) => boolean): Promise<void>;
}

export interface RpcAnswer {
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data: Readonly<Record<string, unknown>>;
  };
}

let calls = 0;

/** Calls a method of a running bridge as an app does. */
export function callBridge(url: string, method: string, params: object, token = ''): StreamedCall {
  calls += 1;
  const id = `call-${calls}`;
  const updates: Readonly<Record<string, unknown>>[] = [];
  const waiting = new Set<() => void>();

  async function run(): Promise<RpcAnswer> {
    const response = await fetch(`${url}/acp/rpc`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'text/event-stream',
        ...(token !== '' && { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id, method, params }),
    });
    let text = '';
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const data = /^data: (\{.*)$/m.exec(block)?.[1];
        if (data === undefined) continue;
        const message = JSON.parse(data);
        if (message.id === id) return message;
        updates.push(message.params);
        for (const look of waiting) look();
      }
    }
    throw new Error(`no answer (status ${response.status}): ${text}`);
  }

  const answer = run();
  return {
    updates,
    answer,
    until: (fits) =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (!updates.some(fits)) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        answer.then((ended) => reject(new Error(`the answer came first: ${JSON.stringify(ended)}`)), reject);
        look();
      }),
  };
}
