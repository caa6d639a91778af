import { Compile } from 'typebox/schema';
import { ApiError } from '../../../../src/completions/contract/read-request.ts';
import { completionsErrors } from '../../../../src/completions/errors.ts';
import type { Asked } from '../scenario.ts';

export interface Question {
  readonly method?: string;
  readonly path: string;
  readonly key: string;
  readonly body?: object;
}

// biome-ignore lint/suspicious/noExplicitAny: scenarios look at answers of every shape.
export type AskCompletions = (question: Question) => Promise<Asked<any>>;

const documented = Compile(ApiError);

/** Calls completions, and looks whether a refusal is as it is documented and gives nothing away. */
export function createAskCompletions(url: string, secrets: readonly string[]): AskCompletions {
  return async ({ method = 'GET', path, key, body }) => {
    const isJson = body !== undefined && !(body instanceof FormData);
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(isJson && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: body instanceof FormData ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    if (response.status < 400) return { told: text === '' ? {} : JSON.parse(text), code: '', problems: [] };
    const leaks = secrets.filter((secret) => text.includes(secret)).map(() => 'a secret is in the answer');
    const given: unknown = JSON.parse(text);
    if (!documented.Check(given)) {
      return { code: 'undocumented', problems: [...leaks, `the answer is not as errors are documented: ${text}`] };
    }
    const code = given.error.code ?? '';
    const row = Object.entries(completionsErrors).find(([name]) => name.toLowerCase() === code)?.[1];
    const isRight = row?.status === response.status && code !== 'internal_error';
    return { code, problems: isRight ? leaks : [...leaks, `${response.status} ${code} is not documented`] };
  };
}
