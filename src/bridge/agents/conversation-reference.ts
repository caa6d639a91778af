import { asObject } from './loose-json.ts';

/** All that is needed to go on with a conversation, also after a restart of the bridge. */
export interface ConversationReference {
  /** The agent's own name for it. */
  readonly conversation: string;
  readonly folder: string;
  /** Whether another process of the agent can take it up: what is not so is lost with its process. */
  readonly continues: boolean;
  /** Whether another process of the agent can delete it. */
  readonly deletes: boolean;
}

export function writeReference({ conversation, folder, continues, deletes }: ConversationReference): string {
  return JSON.stringify({ conversation, folder, continues, deletes });
}

export function readReference(text: string): ConversationReference | undefined {
  try {
    const { conversation, folder, continues, deletes } = asObject(JSON.parse(text));
    if (typeof conversation !== 'string' || typeof folder !== 'string') return undefined;
    return { conversation, folder, continues: continues === true, deletes: deletes === true };
  } catch {
    return undefined;
  }
}
