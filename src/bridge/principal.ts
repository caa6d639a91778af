import { AppError } from '../platform/errors/app-error.ts';
import { type Bucket, type Owner, type OwnerOf, teamOfOwner } from '../platform/identity/owner.ts';
import { type Action, atWorkFor, may, type Principal, type Scope, teamOf } from '../platform/identity/principal.ts';

const BRIDGE: ReadonlySet<Scope> = new Set(['bridge']);

/** The principal of the operator: the main token, an open bridge, and programs on our standard streams. */
export const MAIN: Principal = { ...principalOf('main'), role: 'root', seesAll: true };

/** A principal that sees its own work only: the review token, another node, or the owner that a job runs for. */
export function principalOf(id: string, buckets: readonly Bucket[] = []): Principal {
  return { id, role: 'user', teams: [], scopes: BRIDGE, buckets, seesAll: false };
}

/** Whether work belongs to the operator, who may use the environment of this program. */
export function isOperators(owner: string | undefined): boolean {
  return owner === MAIN.id;
}

const PERSON = /^(?:user|service|team):([A-Za-z0-9_-]{1,128})$/;

/** The id of the person, service account or team that an owner is. Undefined: it is a static token, or another node. */
export function personOf(owner: string): string | undefined {
  return PERSON.exec(owner)?.[1];
}

/** Whether work belongs to a person, a service account or a team, who have nothing of the operator's. */
export function isPersons(owner: string | undefined): owner is string {
  return owner !== undefined && /^(?:user|service|team):/.test(owner);
}

/** Throws PERSON_NOT_CHARGED for work of a person that the operator would pay for. */
export function refuseUncharged(owner: string, reason: string): void {
  if (isPersons(owner)) throw new AppError('PERSON_NOT_CHARGED', { reason });
}

const ACTIONS: Readonly<Record<string, Action>> = {
  'session.message': 'message',
  'session.cancel': 'cancel',
  'session.close': 'close',
};
const READING: ReadonlySet<string> = new Set([
  'acp.capabilities',
  'app.routing.resolve',
  'app.jobs.get',
  'app.jobs.list',
  'app.jobs.stats',
]);

/** What a method does to the work that it names. Undefined: it only reads. A method that is not listed starts something. */
function actionOf(method: string): Action | undefined {
  return READING.has(method) ? undefined : (ACTIONS[method] ?? 'start');
}

/** Throws FORBIDDEN when a principal may not do what a method does to the work of an owner. */
export function requireMay(principal: Principal, method: string, owner: string): void {
  const action = actionOf(method);
  if (action !== undefined && !may(principal, action, owner)) throw new AppError('FORBIDDEN');
}

/** Whether agents may work for an owner. Someone who is not known here holds a static token, or comes from a node. */
export function isAtWork(owner: Owner | undefined): boolean {
  return owner === undefined || (owner.state === 'active' && owner.bridge && owner.role !== 'readonly');
}

/** Whether agents may work for a team on behalf of a person: a member, while both may use agents. */
export function isMemberAtWork(person: Owner, owner: string): boolean {
  return isAtWork(person) && teamOfOwner(person, owner)?.bridge === true;
}

/** A member who goes on with work of a team works for the team. An administrator who is not in it stays what they are. */
export function workingFor(principal: Principal, owner: string): Principal {
  if (owner === principal.id || principal.credential === undefined) return principal;
  const team = teamOfOwner(principal.credential.owner, owner);
  return team === undefined ? principal : atWorkFor(team, principal);
}

/** A principal that means the work of one owner and nothing else. Ask `requireMay` before: it counts as that owner. */
export function onlyFor(principal: Principal, owner: string): Principal {
  const person = principal.member ?? principal;
  return { ...principal, id: owner, teams: [], seesAll: false, member: person };
}

/**
 * The principal that stored work runs for: its owner, and where that is a team, the member who asked for it (empty: nobody
 * of the team did). Throws NOT_IN_TEAM when the member has left.
 */
export type PrincipalFor = (owner: string, member: string) => Promise<Principal>;

export function createPrincipalFor(ownerOf: OwnerOf | undefined): PrincipalFor {
  return async (owner, member) => {
    if (member === '') return principalOf(owner, (await ownerOf?.(owner))?.buckets);
    const person = await ownerOf?.(member);
    const team = person === undefined ? undefined : teamOfOwner(person, owner);
    if (person === undefined || team === undefined) throw new AppError('NOT_IN_TEAM', { team: teamOf(owner) ?? '' });
    return atWorkFor(team, principalOf(member, person.buckets));
  };
}

/**
 * Reads a page of each owner and makes one page of them, so that each read can use the index of its owner. Without owners the
 * page is that of all. Someone in many teams costs more reads, and no scan.
 */
export async function mergedPages<Row>(
  owners: readonly string[] | undefined,
  read: (owner: string | undefined) => Promise<readonly Row[]>,
  page?: { readonly order: (one: Row, other: Row) => number; readonly limit: number },
): Promise<readonly Row[]> {
  const [first, ...others] = owners ?? [undefined];
  if (others.length === 0) return read(first);
  const rows = (await Promise.all((owners ?? []).map(read))).flat();
  return page === undefined ? rows : rows.toSorted(page.order).slice(0, page.limit);
}

/** There is one tenant for now; rows name theirs, so that there can be more. */
export const TENANT = 'default';
