import { readFile } from 'node:fs/promises';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort } from '../accounts-core.ts';
import { explainTaken } from '../administration/user-administration.ts';
import type { FirstAdmin } from '../contract/registration.ts';
import type { User } from '../contract/user.ts';
import { checkNewPassword } from '../passwords/password-rules.ts';
import { normalizeEmail, normalizeName } from '../registration/identity.ts';
import { newUserRow } from '../registration/new-user.ts';

/** The first administrator (contract/accounts, Rules: First admin): there is no account and no password before it. */
export interface Setup {
  /** A token for the set-up page, good once and for 15 minutes; undefined as soon as there is an administrator. */
  issueToken(): Promise<string | undefined>;
  /** Makes the one root user, once. */
  complete(first: FirstAdmin, head: RequestHead): Promise<{ message: string; user: User }>;
  showPage({ reply }: Pick<Call, 'reply'>): Promise<unknown>;
  showAsset(name: 'setup.js' | 'setup.css', { reply }: Pick<Call, 'reply'>): Promise<unknown>;
}

type Parts = BasePort & PeoplePort & CredentialsPort & PostPort;

export function createSetup(parts: Parts): Setup {
  const { database, users, userAdministration, flows, audit, clock } = parts;
  return {
    async issueToken() {
      if (await userAdministration.hasAdmin()) return undefined;
      const { token, statement } = flows.issue('setup', {});
      await database.write([statement, audit.statement({ event: 'setup.offered', actor: 'system' })]);
      return token;
    },
    async complete(first, head) {
      // Nothing else is looked at for someone who was not given the link.
      if ((await flows.open('setup', first.token)) === undefined) throw new AppError('INVALID_TOKEN');
      if (await userAdministration.hasAdmin()) throw new AppError('SETUP_DONE');
      const name = normalizeName(first.name);
      if (name === undefined) throw new AppError('NAME_REQUIRED');
      const email = normalizeEmail(first.email);
      if (email === undefined) throw new AppError('INVALID_EMAIL');
      checkNewPassword(first.password, { name, email });
      const passwordHash = await parts.passwords.hash(first.password);
      const user = newUserRow(
        { name, email, emailVerified: true, confirmed: true, passwordHash, role: 'root', now: clock.now() },
        parts.makeId,
        parts.randomness,
      );
      const done = audit.statement({ event: 'setup.completed', actor: user.id, subject: user.id, head });
      try {
        await database.write([flows.take('setup', first.token), ...users.add(user), done]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') throw new AppError('INVALID_TOKEN');
        // Another link was quicker, perhaps with the same name or address. Any other failure may be that of this very one.
        const isTaken = errorCode(error) === 'STORAGE_DUPLICATE';
        if (isTaken && (await userAdministration.hasAdmin())) throw new AppError('SETUP_DONE');
        explainTaken(error);
      }
      return { message: 'setup_completed', user: await parts.userObjects.describe(user) };
    },
    async showPage({ reply }) {
      const html = setupPage(await userAdministration.hasAdmin());
      reply.header('content-security-policy', POLICY).header('cross-origin-opener-policy', 'same-origin');
      return reply.type('text/html; charset=utf-8').send(html);
    },
    async showAsset(name, { reply }) {
      const text = await readFile(new URL(`browser/${name}`, import.meta.url), 'utf8');
      return reply.type(`${name.endsWith('.js') ? 'text/javascript' : 'text/css'}; charset=utf-8`).send(text);
    },
  };
}

/** Nothing but our own two files and the empty icon that the page names, and no markup made from data. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/**
 * The set-up page before its script has run. The token stands behind the "#" of its address, which no server is sent.
 * Once there is an administrator the page says so, and has neither form nor script.
 */
function setupPage(hasAdmin: boolean): string {
  return page(hasAdmin ? '' : SCRIPT, hasAdmin ? DONE : FORM);
}

const SCRIPT = '<script type="module" src="/setup/setup.js"></script>\n';

const DONE = `<p id="intro">There is an administrator already, so this page creates no other one. Ask an administrator for an account, or run on the server: <code>trestle user create --email E --name N --role admin</code></p>
`;

const FORM = `<p id="intro">This account may do everything here. There is no other one yet.</p>
<form id="form" autocomplete="on">
<label for="name">Name</label>
<input id="name" name="name" autocomplete="name" required maxlength="64">
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required maxlength="254">
<label for="password">Password <small>at least 8 characters</small></label>
<input id="password" name="password" type="password" autocomplete="new-password" required minlength="8">
<label for="again">Password again</label>
<input id="again" name="again" type="password" autocomplete="new-password" required minlength="8">
<button type="submit">Create</button>
</form>
<p id="message" role="status" aria-live="polite"></p>
<noscript><p>This page needs JavaScript. On the command line: <code>trestle user create --email E --name N --role admin</code></p></noscript>
`;

const page = (script: string, main: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>First administrator</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/setup/setup.css">
${script}</head>
<body>
<main>
<h1>First administrator</h1>
${main}</main>
</body>
</html>
`;
