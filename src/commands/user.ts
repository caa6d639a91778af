import { resolve } from 'node:path';
import { Argument, type Command } from 'commander';
import type { ControlMethod, ControlResult } from '../system/controls.ts';
import { type CommandContext, print, readPassword } from './command-context.ts';
import { callFromCommand } from './load-settings.ts';

type UserPage = ControlResult<'accounts', 'users.list'>;
type UserInfo = ControlResult<'accounts', 'users.role'>['user'];

type UserChange = Exclude<ControlMethod<'accounts'>, 'users.list' | `agents.${string}`>;

/** Calls a method that changes a user, and prints the user and the token that was issued. */
async function changeUser(
  method: UserChange,
  params: Readonly<Record<string, unknown>>,
  command: Command,
  context: CommandContext,
): Promise<void> {
  const changed = await callFromCommand(command, context, 'accounts', method, params);
  const token = 'token' in changed && 'link' in changed ? tokenText(changed.token, changed.link) : '';
  print(command, context, changed, `${userLine(changed.user)}${token}`);
}

/** `trestle user create|list|role|plan|reset-password|reset-mfa|password-filter`. */
export function registerUser(program: Command, context: CommandContext): void {
  const user = program
    .command('user')
    .summary('create users, list them, change roles, plans, passwords and second factors')
    .description('Manages the users of the accounts service, whether the server runs or not.');
  registerCreate(user, context);
  registerList(user, context);
  registerChanges(user, context);
  registerPasswordFilter(user, context);
}

function registerCreate(user: Command, context: CommandContext): void {
  user
    .command('create')
    .summary('create a user; the first administrator becomes root')
    .description(
      'Creates a user. Without a password, prints a token to set one; it is not shown again. The first administrator gets the role root.',
    )
    .requiredOption('--email <address>', 'e-mail address')
    .requiredOption('--name <name>', 'name')
    .option('--role <role>', 'root, admin, operator, user or readonly', 'user')
    .option('--password-stdin', 'read the password from standard input')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle user create --email ann@example.org --name Ann --role admin\n  pass show ann | trestle user create --email ann@example.org --name Ann --role admin --password-stdin',
    )
    .action(async (given: Readonly<Record<string, unknown>>, command: Command) => {
      const { email, name, role } = given;
      const password = given.passwordStdin === true ? await readPassword(context) : undefined;
      const params = { email, name, role, ...(password !== undefined && { password }) };
      await changeUser('users.create', params, command, context);
    });
}

function registerList(user: Command, context: CommandContext): void {
  user
    .command('list')
    .summary('list users, newest first')
    .description('Lists users, newest first.')
    .option('--search <text>', 'part of the e-mail address or the name')
    .option('--role <role>', 'only users with this role')
    .addHelpText('after', '\nExamples:\n  trestle user list --role admin\n  trestle user list --json | jq .users')
    .action(async (filter: Readonly<Record<string, string>>, command: Command) => {
      const { json } = command.optsWithGlobals();
      const users: UserInfo[] = [];
      let cursor: string | null = null;
      let count = 0;
      do {
        const params: Record<string, unknown> = { ...filter, limit: 200, ...(cursor !== null && { cursor }) };
        const page: UserPage = await callFromCommand(command, context, 'accounts', 'users.list', params);
        if (json === true) users.push(...page.users);
        else context.stdout(page.users.map(userLine).join(''));
        count += page.users.length;
        cursor = page.nextCursor;
      } while (cursor !== null);
      print(command, context, { users }, count > 0 ? '' : noUsers(filter));
    });
}

/** Adds a command that changes one thing of a user: of this name, or the name of its further argument. */
function addChange(user: Command, name: string, method: UserChange, context: CommandContext): Command {
  return user
    .command(name)
    .argument('<user>', 'id or e-mail address')
    .action((person: string, ...given: [...words: unknown[], options: unknown, command: Command]) => {
      const words = given.length > 2 ? { [name]: given[0] } : {};
      return changeUser(method, { user: person, ...words }, given.at(-1) as Command, context);
    });
}

function registerChanges(user: Command, context: CommandContext): void {
  addChange(user, 'role', 'users.role', context)
    .summary('give a user another role')
    .description('Gives a user another role. It applies from the next request.')
    .argument('<role>', 'admin, operator, user or readonly')
    .addHelpText('after', '\nExamples:\n  trestle user role ben@example.org operator');
  addChange(user, 'plan', 'users.plan', context)
    .summary('give a user another plan')
    .description('Gives a user another plan. It applies from the next request.')
    .addArgument(
      new Argument('[plan]', 'a name under plans, or free').default(
        '',
        'the plan of the subscription, or the default plan',
      ),
    )
    .addHelpText('after', '\nExamples:\n  trestle user plan ben@example.org pro\n  trestle user plan ben@example.org');
  addChange(user, 'reset-password', 'users.resetPassword', context)
    .summary('print a token to set a new password')
    .description('Prints a token with which the user sets a new password. The current password works until then.')
    .addHelpText('after', '\nExamples:\n  trestle user reset-password ann@example.org');
  addChange(user, 'reset-mfa', 'users.resetMfa', context)
    .summary('remove the second factor of a user who has lost it')
    .description(
      'Removes the authenticator app and the recovery codes of a user. Every login session of the user ends, and a mail tells the user.',
    )
    .addHelpText('after', '\nExamples:\n  trestle user reset-mfa ann@example.org');
}

function registerPasswordFilter(user: Command, context: CommandContext): void {
  user
    .command('password-filter')
    .summary('build the filter of breached passwords from a list')
    .description(
      'Builds the file for accounts.breached_passwords from a list of passwords, one per line. Users can no longer choose these passwords; passwords already in use keep working. Restart the server afterwards.',
    )
    .argument('<list>', 'file with one password per line')
    .argument('<filter>', 'file to write')
    .addHelpText('after', '\nExamples:\n  trestle user password-filter top-million.txt breached.bloom')
    .action(async (list: string, filter: string, _given: unknown, command: Command) => {
      const { buildPasswordFilter } = await import('../platform/secrets/password-filter.ts');
      const passwords = await buildPasswordFilter(resolve(list), resolve(filter));
      print(command, context, { filter, passwords }, `${filter}: ${passwords} passwords\n`);
    });
}

function noUsers(filter: Readonly<Record<string, string>>): string {
  if (Object.keys(filter).length > 0) return 'No matching users.\n';
  return 'No users. Create the first with: trestle user create --email you@example.org --name You --role admin\n';
}

function userLine({ id, email, name, role, active, emailVerified, mfaEnabled }: UserInfo): string {
  const notes = [!active && 'paused', !emailVerified && 'email not verified', mfaEnabled && 'second factor'].filter(
    (note) => note !== false,
  );
  return `  ${id}  ${email}  ${name}  ${role}${notes.length === 0 ? '' : `  (${notes.join(', ')})`}\n`;
}

function tokenText(token: string | undefined, link: string | undefined): string {
  if (token === undefined) return '';
  return `\n  Set the password here, once, within three days, while the server runs:\n\n  ${link}\n\n  Or send the token ${token} to POST /api/auth/password/forgot/confirm, with the password.\n`;
}
