import { Compile } from 'typebox/schema';
import { AccountError } from '../../../../src/accounts/contract/conventions.ts';
import { accountsErrorBody, accountsErrors } from '../../../../src/accounts/errors.ts';
import type { Answer, CallOptions } from '../../../kit/accounts/accounts-client.ts';
import type { RunningAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Asked } from '../scenario.ts';

export type AskAccounts = (method: string, path: string, options?: CallOptions) => Promise<Asked<Answer>>;

const documented = Compile(AccountError);
/** Cookies that are worth something to whoever gets them. */
const WORTH = /^(?:xc_session|xc_device|xc_oauth|xc_verification)=[^;]/;

/** Calls accounts, and looks whether a refusal is as it is documented and gives nothing away. */
export function createAskAccounts(accounts: RunningAccounts, secrets: readonly string[]): AskAccounts {
  return async (method, path, options = {}) => {
    const answer = await accounts.call(method, path, options);
    if (answer.status < 400) return { told: answer, code: '', problems: [] };
    return { code: String(answer.body?.error), problems: [...undocumented(answer), ...givenAway(answer, secrets)] };
  };
}

function undocumented({ status, body, text }: Answer): string[] {
  if (!documented.Check(body)) return [`the answer is not as errors are documented: ${text.slice(0, 200)}`];
  const rows = Object.entries(accountsErrors).filter(([code, row]) => {
    const described = { code, rpc: 0, message: '', requestId: '', details: {}, status: row.status };
    return accountsErrorBody(described).error === body.error;
  });
  if (body.error === 'internal_error') return ['the answer is an internal error'];
  return rows.some(([, row]) => row.status === status) ? [] : [`${status} ${body.error} is not documented`];
}

function givenAway({ text, headers }: Answer, secrets: readonly string[]): string[] {
  const cookies = headers.getSetCookie().filter((cookie) => WORTH.test(cookie));
  return [
    ...secrets.filter((secret) => text.includes(secret)).map(() => 'a secret is in the answer'),
    ...cookies.map((cookie) => `a refusal sets the cookie ${cookie.slice(0, cookie.indexOf('='))}`),
  ];
}
