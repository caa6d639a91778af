import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Scope } from '../kit/running-program.ts';

export interface GatedModel {
  /** The address for `completions.apis`. */
  readonly baseUrl: string;
  /** What the model was asked, oldest first. */
  readonly asked: readonly { readonly messages: readonly { readonly content: unknown }[]; readonly tools?: unknown }[];
  /** Lets the rest of the stream go. */
  sendRest(): void;
}

/** A model that streams its first piece of text at once, and the second when it is told to. */
export async function startGatedModel(scope: Scope, first: string, second: string): Promise<GatedModel> {
  const gate = Promise.withResolvers<void>();
  const asked: GatedModel['asked'][number][] = [];
  const server = createServer(async (request, response) => {
    const body = await text(request);
    if (body !== '') asked.push(JSON.parse(body) as (typeof asked)[number]);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(chunk({ role: 'assistant', content: first }));
    await gate.promise;
    response.end(`${chunk({ content: second })}${chunk({}, 'stop')}data: [DONE]\n\n`);
  }).listen(0, '127.0.0.1');
  scope.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, 'listening');
  return {
    asked,
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    sendRest: () => gate.resolve(),
  };
}

function chunk(delta: object, finish: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices })}\n\n`;
}
