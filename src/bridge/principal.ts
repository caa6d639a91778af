/**
 * Who is calling: the holder of the main token (or anybody, when none is configured), of the review token, or another node,
 * with the owner of the work there when that is not its main token.
 */
export type Principal = 'main' | 'review' | `node:${string}`;

/** The principal of the operator: the main token, an open bridge, and programs on our standard streams. */
export const OPERATOR = 'main';

/** Whether a principal sees the work of every owner (contract/bridge 11). The only place that says who does. */
export function seesAll(principal: string): boolean {
  return principal === OPERATOR;
}

/** Whether a principal sees, and may act on, what an owner has. Used for sessions, jobs, artifacts and routes alike. */
export function sees(principal: string, owner: string): boolean {
  return principal === owner || seesAll(principal);
}

/**
 * What a principal means by a name that several owners have given: its own, and only where it has none, what it sees of
 * others.
 */
export function ownFirst<Thing extends { readonly owner: string }>(
  principal: string,
  things: readonly Thing[],
): readonly Thing[] {
  const own = things.filter(({ owner }) => owner === principal);
  return own.length > 0 ? own : things.filter(({ owner }) => sees(principal, owner));
}

/** There is one tenant for now; rows name theirs, so that there can be more. */
export const TENANT = 'default';
