import { Type } from 'typebox';
import { AppError } from '../platform/errors/app-error.ts';
import { defineMethod, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { AccountsCore } from './accounts-core.ts';
import { createUserAdministration } from './administration/user-administration.ts';
import { PageQuery, pageOf, User } from './contract/conventions.ts';
import { Agent, NewAgent } from './contract/proxy-node.ts';
import { isRole, ROLE_NAMES, type Role } from './permissions.ts';
import { describeAgent } from './proxy-nodes/agent-registry.ts';
import { createPersonCreation, nameKey, normalizeEmail } from './registration/new-user.ts';
import type { AccountsSettings } from './settings.ts';
import type { FoundUser } from './storage/accounts-schema.ts';

/** The actor of commands: anyone who may run commands on this data directory ranks with root. */
const COMMAND = { id: 'command', role: 'root' };

const Changed = Type.Object({ user: User });
const link = Type.String({ description: 'The page to set the password on.' });

/** What each method returns. Commands have their types from here. */
export const accountsControlResults = {
  'users.create': Type.Object({
    user: User,
    token: Type.Optional(Type.String({ description: 'To set the password with.' })),
    link: Type.Optional(link),
  }),
  'users.list': Type.Object({ users: Type.Array(User), nextCursor: Type.Union([Type.String(), Type.Null()]) }),
  'users.role': Changed,
  'users.plan': Changed,
  'users.resetPassword': Type.Object({ user: User, token: Type.String(), link }),
  'users.resetMfa': Changed,
  'agents.create': Type.Object({ agent: Agent, token: Type.String() }),
  'agents.list': Type.Object({ agents: Type.Array(Agent) }),
  'agents.revoke': Type.Object({}),
};
const Named = { user: Type.String({ minLength: 1, maxLength: 254, description: 'Id or e-mail address.' }) };

/** What the operator's commands ask of this service: `trestle user`, `trestle proxy-node`. */
export function accountsControlMethods(core: AccountsCore): readonly MethodRow<undefined>[] {
  const { database, users, userAdministration, userObjects, agentRegistry, flows, audit } = core;
  const createPerson = createPersonCreation(core);
  const administration = createUserAdministration(core);
  const linkOf = (token: string) => `${core.frontendUrl()}/set-password#token=${token}`;

  async function findUser(named: string): Promise<FoundUser> {
    const user = named.includes('@') ? await users.byEmail(normalizeEmail(named) ?? '') : await users.byId(named);
    if (user === undefined) throw new AppError('USER_NOT_FOUND');
    return user;
  }

  /** Returns `root` for the first administrator, however it is created. */
  async function roleOf(given: string): Promise<Role> {
    if (!isRole(given))
      throw new AppError('INVALID_ROLE', { reason: `There is no such role; use one of ${ROLE_NAMES}.` });
    return given === 'admin' && !(await userAdministration.hasAdmin()) ? 'root' : given;
  }

  return [
    defineMethod({
      name: 'users.create',
      summary: 'Makes a user, with a password or with a token to set one.',
      params: Type.Object({
        email: Type.String(),
        name: Type.String(),
        role: Type.String(),
        password: Type.Optional(Type.String()),
      }),
      result: accountsControlResults['users.create'],
      async handle({ email, name, role: asked, password }) {
        const { user, token } = await createPerson({
          how: 'command',
          name,
          email,
          emailVerified: password !== undefined,
          password,
          role: await roleOf(asked),
          actor: COMMAND.id,
        });
        return { user: await userObjects.describe(user), ...(token !== undefined && { token, link: linkOf(token) }) };
      },
    }),
    defineMethod({
      name: 'users.list',
      summary: 'Lists users, newest first.',
      params: Type.Object({
        search: Type.Optional(Type.String({ maxLength: 254 })),
        role: Type.Optional(Type.String()),
        ...PageQuery.properties,
      }),
      result: accountsControlResults['users.list'],
      async handle({ search, role, cursor, limit }) {
        const filter = { role, search: search === undefined ? undefined : nameKey(search) };
        const page = await pageOf(limit, (most) => userAdministration.list(filter, cursor, most));
        return { users: await userObjects.describeAll(page.rows), nextCursor: page.nextCursor };
      },
    }),
    defineMethod({
      name: 'users.role',
      summary: 'Gives a user another role.',
      params: Type.Object({ ...Named, role: Type.String() }),
      result: accountsControlResults['users.role'],
      async handle({ user, role }) {
        const { id } = await findUser(user);
        return { user: await userObjects.describe(await administration.setRole(id, role, COMMAND)) };
      },
    }),
    defineMethod({
      name: 'users.plan',
      summary: 'Gives a user another plan.',
      params: Type.Object({ ...Named, plan: Type.String({ maxLength: 64 }) }),
      result: accountsControlResults['users.plan'],
      async handle({ user, plan }) {
        const { id } = await findUser(user);
        return { user: await userObjects.describe(await administration.setPlan(id, plan, COMMAND)) };
      },
    }),
    defineMethod({
      name: 'users.resetPassword',
      summary: 'Issues a token to set a new password with.',
      params: Type.Object(Named),
      result: accountsControlResults['users.resetPassword'],
      async handle({ user: named }) {
        const user = await findUser(named);
        const { token, statement } = flows.issue('set_password', { userId: user.id });
        const issued = audit.statement({ event: 'password.token_issued', actor: COMMAND.id, subject: user.id });
        await database.write([statement, issued]);
        return { user: await userObjects.describe(user), token, link: linkOf(token) };
      },
    }),
    defineMethod({
      name: 'users.resetMfa',
      summary: 'Removes the second factor of a user who has lost it.',
      params: Type.Object(Named),
      result: accountsControlResults['users.resetMfa'],
      async handle({ user: named }) {
        const { id } = await findUser(named);
        return { user: await userObjects.describe(await administration.resetMfa(id, COMMAND)) };
      },
    }),
    defineMethod({
      name: 'agents.create',
      summary: 'Registers an agent of a proxy node.',
      params: NewAgent,
      result: accountsControlResults['agents.create'],
      async handle(agent) {
        requireProxyNodes(core.settings());
        const created = await agentRegistry.create(agent, COMMAND);
        return { agent: describeAgent(created.agent), token: created.token };
      },
    }),
    defineMethod({
      name: 'agents.list',
      summary: 'Lists the agents of proxy nodes.',
      params: Type.Object({}),
      result: accountsControlResults['agents.list'],
      async handle() {
        requireProxyNodes(core.settings());
        return { agents: (await agentRegistry.list()).map(describeAgent) };
      },
    }),
    defineMethod({
      name: 'agents.revoke',
      summary: 'Removes an agent; its token stops working.',
      params: Type.Object({ id: Type.String({ minLength: 1, maxLength: 64 }) }),
      result: accountsControlResults['agents.revoke'],
      async handle({ id }) {
        requireProxyNodes(core.settings());
        await agentRegistry.revoke(id, COMMAND);
        return {};
      },
    }),
  ];
}

/** Throws PROXY_NODES_OFF where their agents could not report to the server. */
function requireProxyNodes({ proxy_nodes: served }: Pick<AccountsSettings, 'proxy_nodes'>): void {
  if (!served) throw new AppError('PROXY_NODES_OFF');
}
