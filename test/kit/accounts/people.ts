import type { Role } from '../../../src/accounts/permissions.ts';
import { GOOD_PASSWORD, type LoggedIn } from './accounts-client.ts';
import type { RunningAccounts } from './start-accounts.ts';

/** Someone with a role who is logged in, made as an operator makes them: by a command. The first `admin` is root. */
export async function loggedInAs(accounts: RunningAccounts, role: Role, name = `${role} one`): Promise<LoggedIn> {
  const email = `${name.replaceAll(' ', '.').toLowerCase()}@example.org`;
  const given = { email, name, role, password: GOOD_PASSWORD };
  const { user } = await accounts.control<{ user: { id: string } }>('users.create', given);
  const person = { name, email, password: GOOD_PASSWORD, id: user.id };
  const answer = await accounts.login(person);
  if (answer.status !== 200) throw new Error(answer.text);
  return { ...person, token: answer.body.token, refreshToken: answer.body.refresh_token, answer };
}

/** What was recorded, newest first, as an administrator sees it. */
export async function auditOf(
  accounts: RunningAccounts,
  admin: { readonly token: string },
  query = '',
): Promise<{ event: string; actor: string; subject: string; details: Record<string, unknown> }[]> {
  return (await accounts.get(`admin/audit?limit=200&${query}`, { token: admin.token })).body.entries;
}
