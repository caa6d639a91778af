import { mkdir } from 'node:fs/promises';
import { isOperators, personOf } from '../principal.ts';

/** The folders in which agents may work, by owner of the work. */
export interface OwnerRoots {
  /** Those of an owner. The own folder of a person or a team is made when it is not there. */
  of(owner: string): Promise<readonly string[]>;
  /** What an owner must not enter although it is inside of its folders: the folders of people, for other static tokens and nodes. */
  closedTo(owner: string): readonly string[];
  /** Folders that the operator has listed: one of them may contain a private place, because the operator wants it so. */
  readonly listed: readonly string[];
}

export interface OwnerRootsOptions {
  readonly listed: readonly string[];
  /** Used when the operator has listed none. */
  readonly fallback?: readonly string[];
  /** The folder of each person and team, with `{user}` for the id. Undefined: people have the folders of everyone. */
  readonly personal?: string | undefined;
}

/** Owners that are people, service accounts or teams. */
const PLACEHOLDER = /\{(?:user|team)\}/;

export function createOwnerRoots({ listed, fallback = [], personal }: OwnerRootsOptions): OwnerRoots {
  const shared = listed.length === 0 ? fallback : listed;
  const folderOfAll = personal?.slice(0, Math.max(personal.search(PLACEHOLDER), 0)).replace(/\/[^/]*$/, '');
  return {
    listed,
    async of(owner) {
      const id = personOf(owner);
      if (personal === undefined || id === undefined) return shared;
      const folder = personal.replaceAll(/\{(?:user|team)\}/g, id);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      return [folder];
    },
    closedTo: (owner) =>
      folderOfAll === undefined || folderOfAll === '' || isOperators(owner) || personOf(owner) !== undefined
        ? []
        : [folderOfAll],
  };
}
