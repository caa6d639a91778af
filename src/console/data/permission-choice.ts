/** What may happen before an agent runs commands or changes files: `value` of `routing.permissions`. */
export const PERMISSIONS = [
  { value: 'ask', label: 'Ask me' },
  { value: 'allow', label: 'Allow' },
  { value: 'deny', label: 'Read only' },
] as const;

/** For agents whose modes decide it: nothing is sent along with a message. */
export const BY_MODE = { value: 'mode', label: 'By mode' } as const;
const CHOICES = [...PERMISSIONS, BY_MODE] as const;

export type PermissionChoice = (typeof CHOICES)[number]['value'];

const KEY = 'trestle.permissions';
const MAX_KEPT = 200;

/** What was chosen for a session in this browser, by its key; to be asked, where nothing was. */
export function permissionChoice(key: string): PermissionChoice {
  return readAll().find(([id]) => id === key)?.[1] ?? 'ask';
}

/** What a message of the session is sent with. */
export function routingOf(choice: PermissionChoice): { permissions?: 'ask' | 'allow' | 'deny' } {
  return choice === BY_MODE.value ? {} : { permissions: choice };
}

/** Keeps the choice for the next message, and for another day. The oldest choices are forgotten. */
export function keepPermissionChoice(key: string, choice: PermissionChoice): void {
  const others = readAll().filter(([id]) => id !== key);
  localStorage.setItem(KEY, JSON.stringify([...others, [key, choice]].slice(-MAX_KEPT)));
}

const readAll = (): [string, PermissionChoice][] => storedList(KEY).filter(isChoice);

/** What this browser has stored under a name; nothing where it is not a list. */
export function storedList(name: string): unknown[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(name) ?? '[]');
    return Array.isArray(stored) ? stored : [];
  } catch {
    return [];
  }
}

function isChoice(entry: unknown): entry is [string, PermissionChoice] {
  return Array.isArray(entry) && CHOICES.some(({ value }) => value === entry[1]);
}
