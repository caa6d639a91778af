import { type PermissionPolicy, PLAIN_OPTIONS } from '../agent-connection.ts';
import type { AgentEvent, PermissionQuestion } from '../agent-provider.ts';
import { asObject } from '../loose-json.ts';

export interface ApprovalAnswer {
  readonly response: unknown;
  /** For questions of permission. */
  readonly event?: AgentEvent;
}

type Fields = Partial<Record<string, unknown>>;

interface ApprovalRow {
  readonly toolKind: string;
  title(params: Fields): unknown;
  allow(params: Fields): unknown;
  deny: unknown;
}

const DECISION = { allow: () => ({ decision: 'accept' }), deny: { decision: 'decline' } };

const TABLE: Readonly<Record<string, ApprovalRow>> = {
  'item/commandExecution/requestApproval': {
    ...DECISION,
    toolKind: 'execute',
    title: ({ command, reason }) => command ?? reason,
  },
  'item/fileChange/requestApproval': { ...DECISION, toolKind: 'edit', title: ({ reason }) => reason ?? 'change files' },
  'item/permissions/requestApproval': {
    toolKind: 'other',
    title: ({ reason }) => reason ?? 'further permissions',
    allow: ({ permissions }) => ({ permissions: withoutNulls(permissions), scope: 'turn' }),
    deny: { permissions: {}, scope: 'turn' },
  },
};

/** A request of Codex as a question for a person; undefined when the request is not about permission. */
export function questionOf(method: string, params: Fields): PermissionQuestion | undefined {
  const row = Object.hasOwn(TABLE, method) ? TABLE[method] : undefined;
  if (row === undefined) return undefined;
  const toolCallId = typeof params.itemId === 'string' ? params.itemId : '';
  return { toolCallId, title: titleOf(row, params), toolKind: row.toolKind, input: params, options: PLAIN_OPTIONS };
}

/** Answers a request of Codex; undefined for methods that only a person could answer. */
export function answerApproval(method: string, params: Fields, policy: PermissionPolicy): ApprovalAnswer | undefined {
  // A form for a person to fill in: there is nobody to do that, and saying so lets the turn go on.
  if (method === 'mcpServer/elicitation/request') {
    return { response: { action: 'decline', content: null, _meta: null } };
  }
  const row = Object.hasOwn(TABLE, method) ? TABLE[method] : undefined;
  if (row === undefined) return undefined;
  return {
    response: policy === 'allow' ? row.allow(params) : row.deny,
    event: {
      kind: 'permission',
      title: titleOf(row, params),
      decision: policy === 'allow' ? 'allowed' : 'denied',
      ...(typeof params.itemId === 'string' && { toolCallId: params.itemId }),
    },
  };
}

function titleOf(row: ApprovalRow, params: Fields): string {
  const title = row.title(params);
  return typeof title === 'string' && title !== '' ? title : 'a command';
}

/** What is asked for has null where nothing is asked; what is granted leaves it out. */
function withoutNulls(permissions: unknown): object {
  return Object.fromEntries(Object.entries(asObject(permissions)).filter(([, value]) => value !== null));
}
