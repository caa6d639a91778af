import { useQuery } from '@tanstack/react-query';
import { listUsers } from '../../data/administration.ts';
import { listKeys } from '../../data/completions.ts';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';

/** What people read in the place of ids. What has no name here keeps its id. */
export interface CallNames {
  person(owner: string): string;
  key(id: string): string;
}

/** Credentials of calls that are not keys. */
const NOT_KEYS: Readonly<Partial<Record<string, string>>> = { login: 'a login' };

/** The names of the own keys and of the owners of calls. */
export function useCallNames(owners: readonly string[]): CallNames {
  const person = usePersonNames(owners);
  const { person: me } = useConsole();
  const keys = useQuery({ queryKey: ['keys'], queryFn: listKeys, enabled: me !== undefined });
  const names = new Map(keys.data?.map(({ id, name }) => [id, name]));
  return { person, key: (id) => visible(names.get(id) ?? NOT_KEYS[id] ?? id) };
}

/** The names of people. Of others only for those who may list them, and only where there are others. */
export function usePersonNames(owners: readonly string[]): (owner: string) => string {
  const { person } = useConsole();
  const mayList = person?.permissions.includes('admin.users.list.read') === true;
  const me = person === undefined ? '' : `user:${person.id}`;
  const users = useQuery({
    queryKey: ['users', 'names'],
    queryFn: () => listUsers({ limit: 200 }),
    enabled: mayList && owners.some((owner) => owner.startsWith('user:') && owner !== me),
  });
  const names = new Map(users.data?.users.map(({ id, name }) => [`user:${id}`, name]));
  if (person !== undefined) names.set(me, person.name);
  return (owner) => visible(names.get(owner) ?? owner);
}
