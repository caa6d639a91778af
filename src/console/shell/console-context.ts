import { createContext, useContext } from 'react';
import type { Live } from '../../client/trestle-client.ts';
import type { Person, SystemFacts } from '../data/accounts.ts';

interface ConsoleValue {
  readonly system: SystemFacts;
  /** Undefined where nobody logs in, and where the bridge is open and nobody has. */
  readonly person: Person | undefined;
  /** Whether agents work for the person: the server runs some, and the plan of the person includes them. */
  readonly hasAgents: boolean;
  /** Undefined where the browser cannot open a socket, and where there are no agents to hear of. */
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
  const { person, system } = useConsole();
  // An open bridge asks nobody who they are.
  return person === undefined || system.signIn === 'open' ? 'main' : `user:${person.id}`;
}
