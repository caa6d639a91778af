/** What an agent does otherwise than its capabilities say. One row per agent, by the name that it gives itself. */
export interface AcpQuirks {
  /** Whether another process really finds a conversation again. */
  readonly keepsConversations: boolean;
}

const ORDINARY: AcpQuirks = { keepsConversations: true };

const TABLE: Readonly<Record<string, AcpQuirks>> = {
  // It announces `loadSession`, but a later process does not find the session, and trying may cost the stored chat.
  'gemini-cli': { keepsConversations: false },
};

export function acpQuirks(agentName: string): AcpQuirks {
  return Object.hasOwn(TABLE, agentName) ? (TABLE[agentName] ?? ORDINARY) : ORDINARY;
}
