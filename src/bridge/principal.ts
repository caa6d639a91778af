import { AppError } from '../platform/errors/app-error.ts';
import type { Bucket, Owner } from '../platform/identity/owner.ts';
import { type Action, may, type Principal, type Scope } from '../platform/identity/principal.ts';

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

/** Whether work belongs to a person or a service account, who have nothing of the operator's. */
export function isPersons(owner: string | undefined): owner is string {
  return owner !== undefined && /^(?:user|service):/.test(owner);
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
  return owner === undefined || (owner.state === 'active' && owner.bridge);
}

/** There is one tenant for now; rows name theirs, so that there can be more. */
export const TENANT = 'default';
