const RESOURCE_NOT_FOUND = -32002;
const MISSING = ['not found', 'unknown', 'no such', 'does not exist', 'no rollout'];

/**
 * Whether an agent's refusal of a prompt means that it no longer knows the conversation. Only few agents have a code of
 * its own for that; the others say it in words.
 */
export function saysUnknownConversation(code: unknown, message: string): boolean {
  if (code === RESOURCE_NOT_FOUND) return true;
  const words = message.toLowerCase();
  const isAboutConversation = words.includes('session') || words.includes('thread') || words.includes('conversation');
  return isAboutConversation && MISSING.some((missing) => words.includes(missing));
}
