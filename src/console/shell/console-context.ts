import { createContext, useContext } from 'react';
import type { Live } from '../../client/trestle-client.ts';
import type { Person, SystemFacts } from '../data/accounts.ts';

interface ConsoleValue {
  readonly system: SystemFacts;
  /** Undefined where nobody logs in. */
  readonly person: Person | undefined;
  /** Undefined where the browser cannot open a socket. */
  readonly live: Live | undefined;
}

export const ConsoleContext = createContext<ConsoleValue | undefined>(undefined);

export function useConsole(): ConsoleValue {
  const value = useContext(ConsoleContext);
  if (value === undefined) throw new Error('useConsole works behind the sign-in only');
  return value;
}

/** The owner that the own sessions have. */
export function useOwnName(): string {
  const { person } = useConsole();
  return person === undefined ? 'main' : `user:${person.id}`;
}
