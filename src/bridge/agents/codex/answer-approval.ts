import type { PermissionPolicy } from '../agent-connection.ts';
import type { AgentEvent } from '../agent-provider.ts';
import { asObject } from '../loose-json.ts';

export interface ApprovalAnswer {
  readonly response: unknown;
  /** For questions of permission. */
  readonly event?: AgentEvent;
}

type Fields = Partial<Record<string, unknown>>;

interface ApprovalRow {
  title(params: Fields): unknown;
  allow(params: Fields): unknown;
  deny: unknown;
}

const DECISION = { allow: () => ({ decision: 'accept' }), deny: { decision: 'decline' } };

const TABLE: Readonly<Record<string, ApprovalRow>> = {
  'item/commandExecution/requestApproval': { ...DECISION, title: ({ command, reason }) => command ?? reason },
  'item/fileChange/requestApproval': { ...DECISION, title: ({ reason }) => reason ?? 'change files' },
  'item/permissions/requestApproval': {
    title: ({ reason }) => reason ?? 'further permissions',
    allow: ({ permissions }) => ({ permissions: withoutNulls(permissions), scope: 'turn' }),
    deny: { permissions: {}, scope: 'turn' },
  },
};

/** Answers a request of Codex for the user; undefined for methods that only a person could answer. */
export function answerApproval(method: string, params: Fields, policy: PermissionPolicy): ApprovalAnswer | undefined {
  // A form for a person to fill in: there is nobody to do that, and saying so lets the turn go on.
  if (method === 'mcpServer/elicitation/request') {
    return { response: { action: 'decline', content: null, _meta: null } };
  }
  const row = Object.hasOwn(TABLE, method) ? TABLE[method] : undefined;
  if (row === undefined) return undefined;
  const title = row.title(params);
  return {
    response: policy === 'allow' ? row.allow(params) : row.deny,
    event: {
      kind: 'permission',
      title: typeof title === 'string' && title !== '' ? title : 'a command',
      decision: policy === 'allow' ? 'allowed' : 'denied',
      ...(typeof params.itemId === 'string' && { toolCallId: params.itemId }),
    },
  };
}

/** What is asked for has null where nothing is asked; what is granted leaves it out. */
function withoutNulls(permissions: unknown): object {
  return Object.fromEntries(Object.entries(asObject(permissions)).filter(([, value]) => value !== null));
}
