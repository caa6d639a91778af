import { Compile } from 'typebox/schema';
import { WorkbenchError } from '../../../../src/bridge/contract/workbench.ts';
import { bridgeErrors } from '../../../../src/bridge/errors.ts';
import type { Headers } from '../../../kit/bridge/session-client.ts';
import type { FakeClock } from '../../../kit/fake-clock.ts';
import { CUT } from '../check-steps.ts';
import type { Asked } from '../scenario.ts';
import { passing } from './ask-bridge.ts';

interface Given {
  readonly body?: object;
  /** A file, instead of a body of JSON. */
  readonly file?: { readonly name: string; readonly text: string };
}

// biome-ignore lint/suspicious/noExplicitAny: scenarios look at answers of every shape.
export type AskWorkbench = (method: string, path: string, given?: Given) => Promise<Asked<any>>;

const documented = Compile(WorkbenchError);

/** Calls the paths below `/api/bridge`, and looks whether a refusal is as it is documented. Time passes while no answer comes. */
export function createAskWorkbench(url: string, clock: FakeClock, headers: Headers = {}): AskWorkbench {
  return async (method, path, { body, file } = {}) => {
    const sent = file?.text ?? (body === undefined ? undefined : JSON.stringify(body));
    const response = await passing(
      clock,
      fetch(`${url}/api/bridge/${path}`, {
        method,
        headers: {
          ...headers,
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...(file !== undefined && { 'content-type': 'text/plain', 'x-file-name': encodeURIComponent(file.name) }),
        },
        ...(sent !== undefined && { body: sent }),
      }),
    );
    const text = await response.text().catch(() => undefined);
    if (text === undefined) return { code: CUT, problems: [] };
    const isJson = (response.headers.get('content-type') ?? '').includes('json');
    if (response.status < 400) return { told: isJson && text !== '' ? JSON.parse(text) : text, code: '', problems: [] };
    const told: unknown = JSON.parse(text);
    if (!documented.Check(told)) return { code: 'undocumented', problems: [`it is not documented: ${text}`] };
    const code = told.error;
    const isKnown = Object.keys(bridgeErrors).some((name) => name.toLowerCase() === code) && code !== 'internal_error';
    return { code, problems: isKnown ? [] : [`it is not documented: ${text}`] };
  };
}
