import type { AskPermission, PermissionQuestion, PermissionReply } from '../agents/agent-provider.ts';
import type { Permission, StoredRule } from '../contract/workbench.ts';
import { TENANT } from '../principal.ts';
import type { PermissionRow, PermissionRuleRow } from '../storage/bridge-schema.ts';
import type { PermissionRule, PermissionSetting } from './permission-rules.ts';

/** The turn that asks. */
export interface AskingTurn {
  readonly sessionKey: string;
  readonly sessionId: string;
  readonly owner: string;
  readonly turnId: string;
  readonly folder: string;
  readonly setting: PermissionSetting;
  /** Asks the editor that made the call. */
  readonly editor: AskPermission | undefined;
}

const RULE_KEPT_MS = 30 * 24 * 60 * 60 * 1000;
const MAX_INPUT_LENGTH = 16 * 1024;
const MAX_TITLE_LENGTH = 4096;
const MAX_OPTIONS = 16;

export const NO_ANSWER = { option_id: '', scope: '', reason: '""', answered_by: '' };

export function toRow(
  turn: AskingTurn,
  { toolCallId, title, toolKind, input, options }: PermissionQuestion,
  id: string,
  instance: string,
  now: number,
  timeoutMs: number,
): PermissionRow {
  const shown = JSON.stringify(input ?? null);
  return {
    id,
    session_key: turn.sessionKey,
    session_id: turn.sessionId,
    owner: turn.owner,
    tenant: TENANT,
    turn_id: turn.turnId,
    instance,
    folder: turn.folder,
    tool_call_id: JSON.stringify(toolCallId),
    title: JSON.stringify(title.slice(0, MAX_TITLE_LENGTH).toWellFormed()),
    tool_kind: toolKind.replaceAll('\0', ''),
    input: shown.length > MAX_INPUT_LENGTH ? JSON.stringify(shown.slice(0, MAX_INPUT_LENGTH).toWellFormed()) : shown,
    options: JSON.stringify(options.slice(0, MAX_OPTIONS)),
    ...NO_ANSWER,
    state: 'open',
    created_at: now,
    expires_at: now + timeoutMs,
    answered_at: null,
  };
}

/** What the agent gets for a request that has ended. */
export function replyOf({ state, option_id: optionId, reason }: PermissionRow): PermissionReply {
  if (state !== 'allowed' && state !== 'denied') return { optionId: undefined };
  const said = JSON.parse(reason) as string;
  return { optionId: optionId === '' ? undefined : optionId, ...(said !== '' && { reason: said }) };
}

export const titleOf = ({ title }: PermissionRow) => JSON.parse(title) as string;

export function toView(row: PermissionRow): Permission {
  return {
    permissionId: row.id,
    sessionId: row.session_id,
    owner: row.owner,
    turnId: row.turn_id,
    toolCallId: JSON.parse(row.tool_call_id) as string,
    title: titleOf(row),
    toolKind: row.tool_kind,
    folder: row.folder,
    input: JSON.parse(row.input) as unknown,
    options: JSON.parse(row.options) as Permission['options'],
    state: row.state,
    optionId: row.option_id,
    scope: row.scope,
    reason: JSON.parse(row.reason) as string,
    answeredBy: row.answered_by,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    answeredAt: row.answered_at,
  };
}

export function toRuleRow(
  rule: PermissionRule,
  asked: PermissionRow,
  scope: string,
  createdBy: string,
  id: string,
  now: number,
): PermissionRuleRow {
  return {
    id,
    owner: asked.owner,
    tenant: TENANT,
    session_key: scope === 'session' ? asked.session_key : '',
    session_id: scope === 'session' ? asked.session_id : '',
    folder: asked.folder,
    tool_kind: rule.kind ?? '',
    command: JSON.stringify(rule.command ?? null),
    path: JSON.stringify(rule.path ?? null),
    decision: rule.decision,
    created_by: createdBy,
    created_at: now,
    expires_at: now + RULE_KEPT_MS,
  };
}

export function toRule(row: PermissionRuleRow): PermissionRule {
  const { command, path } = conditionsOf(row);
  return {
    ...(command && { command }),
    ...(path && { path }),
    kind: row.tool_kind,
    isExact: true,
    decision: row.decision,
  };
}

function conditionsOf(row: PermissionRuleRow) {
  return { command: JSON.parse(row.command) as string[] | null, path: JSON.parse(row.path) as string | null };
}

export function toStoredRule(row: PermissionRuleRow): StoredRule {
  return {
    ruleId: row.id,
    owner: row.owner,
    scope: row.session_key === '' ? 'always' : 'session',
    sessionId: row.session_id,
    folder: row.folder,
    when: { kind: row.tool_kind, ...conditionsOf(row) },
    decision: row.decision,
    createdBy: row.created_by,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
  };
}
