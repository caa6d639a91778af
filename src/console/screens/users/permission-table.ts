import type { MatrixSettings } from '../../../accounts/contract/administration.ts';

export type Matrix = MatrixSettings['matrix'];

/** The permissions of this program: what each lets people do, and whether operators have it unless the matrix says otherwise. */
export const PERMISSIONS: readonly { readonly key: string; readonly text: string; readonly operators: boolean }[] = [
  { key: 'admin.users.list.read', text: 'See all users and invitations', operators: true },
  { key: 'admin.users.metrics.read', text: 'See how many users there are', operators: true },
  { key: 'admin.users.role.write', text: 'Create and invite users, change roles', operators: false },
  { key: 'admin.users.pause.write', text: 'Pause users, end their logins', operators: true },
  { key: 'admin.users.resume.write', text: 'Let paused users in again', operators: true },
  { key: 'admin.users.delete.write', text: 'Remove users', operators: false },
  { key: 'admin.users.renew_uuid.write', text: 'Renew the proxy UUID of users', operators: true },
  { key: 'admin.blacklist.read', text: 'See blocked addresses', operators: true },
  { key: 'admin.blacklist.write', text: 'Block addresses', operators: true },
  { key: 'admin.settings.read', text: 'See this matrix', operators: true },
  { key: 'admin.settings.write', text: 'Change this matrix', operators: true },
  { key: 'admin.agents.status.read', text: 'See proxy nodes', operators: true },
  { key: 'admin.audit.read', text: 'See what happened', operators: true },
  { key: 'admin.bridge.read', text: 'See the sessions and jobs of everyone', operators: true },
];

const OWN: ReadonlyMap<string, boolean> = new Map(PERMISSIONS.map(({ key, operators }) => [key, operators]));

/** What the person has changed and not saved: by module and role. A module that is `null` is removed. */
export type Edits = Readonly<Record<string, Readonly<Record<string, boolean>> | null>>;

/** The modules of apps, which the matrix alone knows. */
export function modulesOf(matrix: Matrix): readonly string[] {
  return Object.keys(matrix).filter((module) => !OWN.has(module));
}

/** Whether a role has a module, and whether that can be changed: root has all, and own permissions are for operators to get. */
export function cellOf(matrix: Matrix, module: string, role: string): { isGranted: boolean; isFixed: boolean } {
  const stated = Object.hasOwn(matrix, module) ? matrix[module] : undefined;
  const said = stated !== undefined && Object.hasOwn(stated, role) ? stated[role] : undefined;
  const usual = OWN.get(module);
  if (usual !== undefined) {
    if (role === 'operator') return { isGranted: said ?? usual, isFixed: false };
    return { isGranted: role === 'root' || role === 'admin', isFixed: true };
  }
  if (role === 'root') return { isGranted: true, isFixed: true };
  return { isGranted: said ?? (role === 'admin' && stated !== undefined), isFixed: false };
}

export function withEdits(matrix: Matrix, edits: Edits): Matrix {
  const next: Record<string, Record<string, boolean>> = { ...matrix };
  for (const [module, roles] of Object.entries(edits)) {
    if (roles === null) delete next[module];
    else next[module] = { ...(Object.hasOwn(matrix, module) ? matrix[module] : {}), ...roles };
  }
  return next;
}

/** Every cell that two matrices do not agree on, in words: `operator gets admin.audit.read`. */
export function differences(before: Matrix, after: Matrix, roles: readonly string[]): readonly string[] {
  const modules = new Set([...OWN.keys(), ...Object.keys(before), ...Object.keys(after)]);
  return [...modules].flatMap((module) => {
    const isOwn = OWN.has(module);
    const wasThere = Object.hasOwn(before, module);
    const isThere = Object.hasOwn(after, module);
    if (!isOwn && wasThere && !isThere) return [`${module} is removed`];
    const cells = roles.flatMap((role) => {
      const is = cellOf(after, module, role).isGranted;
      // Nobody but root had a module that was not there.
      const was = isOwn || wasThere ? cellOf(before, module, role).isGranted : role === 'root';
      return is === was ? [] : [`${role} ${is ? 'gets' : 'loses'} ${module}`];
    });
    return !isOwn && !wasThere && isThere ? [`${module} is new`, ...cells] : cells;
  });
}
