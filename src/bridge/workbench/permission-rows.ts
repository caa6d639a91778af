import { AppError } from '../../platform/errors/app-error.ts';
import type { AskPermission, PermissionOption, PermissionQuestion, PermissionReply } from '../agents/agent-provider.ts';
import { cutText } from '../agents/agent-text.ts';
import { findWrongValue } from '../agents/question-form.ts';
import type { QuestionEvent, QuestionForm, QuestionValues } from '../contract/session-update.ts';
import type { BridgeEvent } from '../contract/surface.ts';
import type { Permission, PermissionAnswer, StoredRule } from '../contract/workbench.ts';
import { TENANT } from '../principal.ts';
import type { PermissionRow, PermissionRuleRow } from '../storage/bridge-schema.ts';
import type { PermissionEnd } from '../storage/workbench-stores.ts';
import {
  type PermissionRule,
  type PermissionSetting,
  type PermissionSubject,
  RULE_MEMBERS,
  ruleText,
  subjectOf,
} from './permission-rules.ts';

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
/** Of one member of an input that is too large. */
const MAX_TEXT_LENGTH = 2048;
const MAX_TITLE_LENGTH = 4096;
const MAX_NAME_LENGTH = 1024;
const MAX_OPTIONS = 16;

export const NO_ANSWER = { option_id: '', scope: '', reason: '""', given: '', answered_by: '' };

export function toRow(
  turn: AskingTurn,
  { toolCallId, title, toolKind, input, options, form }: PermissionQuestion,
  id: string,
  instance: string,
  now: number,
  timeoutMs: number,
): PermissionRow {
  return {
    id,
    session_key: turn.sessionKey,
    session_id: turn.sessionId,
    owner: turn.owner,
    tenant: TENANT,
    turn_id: turn.turnId,
    instance,
    folder: turn.folder,
    tool_call_id: JSON.stringify(cutText(toolCallId, MAX_NAME_LENGTH)),
    title: JSON.stringify(title.slice(0, MAX_TITLE_LENGTH).toWellFormed()),
    tool_kind: cutText(toolKind.replaceAll('\0', ''), MAX_NAME_LENGTH),
    input: storedInput(input),
    options: JSON.stringify(options.slice(0, MAX_OPTIONS)),
    form: form === undefined ? '' : JSON.stringify(form),
    ...NO_ANSWER,
    state: 'open',
    created_at: now,
    expires_at: now + timeoutMs,
    answered_at: null,
  };
}

/** An input that is too large is stored without its long texts or, where a rule would need one of these, as the beginning of its text. */
function storedInput(input: unknown): string {
  const whole = JSON.stringify(input ?? null);
  if (whole.length <= MAX_INPUT_LENGTH) return whole;
  const short = JSON.stringify(isObject(input) ? Object.fromEntries(Object.entries(input).map(shortened)) : whole);
  return short.length <= MAX_INPUT_LENGTH ? short : JSON.stringify(whole.slice(0, MAX_INPUT_LENGTH).toWellFormed());
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shortened([name, value]: [string, unknown]): [string, unknown] {
  const isCut = typeof value === 'string' && value.length > MAX_TEXT_LENGTH && !RULE_MEMBERS.includes(name);
  return [name, isCut ? `${cutText(value, MAX_TEXT_LENGTH)}… (${value.length} characters)` : value];
}

/** Returns the reply to the agent for a request that has ended. */
export function replyOf(row: PermissionRow): PermissionReply {
  if (!isAnswered(row)) return { optionId: undefined };
  const said = JSON.parse(row.reason) as string;
  return {
    optionId: row.option_id === '' ? undefined : row.option_id,
    ...(row.given !== '' && { values: JSON.parse(row.given) as QuestionValues }),
    ...(said !== '' && { reason: said }),
    ...(row.answered_by !== '' && { answeredBy: row.answered_by }),
  };
}

const ANSWERED: ReadonlySet<string> = new Set<PermissionRow['state']>(['allowed', 'denied', 'answered', 'declined']);

/** Whether a person has answered the request. */
export const isAnswered = ({ state }: PermissionRow) => ANSWERED.has(state);

const titleOf = ({ title }: PermissionRow) => JSON.parse(title) as string;
const formOf = ({ form }: PermissionRow) => (form === '' ? null : (JSON.parse(form) as QuestionForm));

/** Returns how an answer ends its request, and the rules that remember it. Throws if the request does not accept that answer. */
export function endOf(
  row: PermissionRow,
  answer: PermissionAnswer,
  answeredBy: string,
  now: number,
  subject: PermissionSubject = askedSubject(row),
): { readonly end: PermissionEnd; readonly rules: readonly PermissionRule[] } {
  const { scope = 'once', reason = '' } = answer;
  const form = formOf(row);
  const { state, optionId = '', given = '' } = form === null ? decided(row, answer) : answered(form, answer);
  const isKept = isRemembered(answer) && form === null;
  const rules = isKept ? rulesFrom(subject, state === 'allowed' ? 'allow' : 'deny') : [];
  if (isRemembered(answer) && rules.length === 0) throw new AppError('PERMISSION_NOT_REMEMBERED');
  const said = { scope, reason: JSON.stringify(reason), answered_by: answeredBy, answered_at: now };
  return { end: { state, option_id: optionId, given, ...said }, rules };
}

/** Answers that become rules. */
export function isRemembered({ scope = 'once' }: PermissionAnswer): boolean {
  return scope !== 'once';
}

interface Outcome {
  readonly state: PermissionRow['state'];
  readonly optionId?: string;
  readonly given?: string;
}

function decided(row: PermissionRow, { optionId, decision, values }: PermissionAnswer): Outcome {
  if (values !== undefined) throw refused('the request has no form; give optionId or decision instead of values');
  const offered = optionsOf(row);
  const option =
    optionId === undefined ? optionFor(decision ?? 'deny', offered) : offered.find((one) => one.optionId === optionId);
  const isDenial = optionId === undefined && decision === 'deny';
  if (option === undefined && !isDenial) {
    throw refused('the request has no such option; its `options` lists them');
  }
  const state = option?.kind.startsWith('allow_') === true ? 'allowed' : 'denied';
  return { state, ...(option !== undefined && { optionId: option.optionId }) };
}

/** An allow without values is an answer where the form needs none. */
function answered(form: QuestionForm, { optionId, decision, values = {} }: PermissionAnswer): Outcome {
  if (optionId !== undefined) throw refused('this is a question with a form; give values, or decision: deny');
  if (decision === 'deny') return { state: 'declined' };
  const wrong = findWrongValue(form, values);
  if (wrong !== undefined) throw refused(wrong);
  return { state: 'answered', given: JSON.stringify(values) };
}

/** Makes the event without title and input, because they may be private. */
export function needsInput({
  id: permissionId,
  session_id: sessionId,
  owner,
  expires_at: at,
}: PermissionRow): BridgeEvent {
  const expiresAt = new Date(at).toISOString();
  return { event: 'session.needs_input', data: { permissionId, sessionId, owner, expiresAt } };
}

/** What a stored request is about. An input that was too large to be stored says nothing, and the title is not all of it. */
export function askedSubject(row: PermissionRow): PermissionSubject {
  const input = JSON.parse(row.input) as unknown;
  const isCut = typeof input === 'string' && input.length >= MAX_INPUT_LENGTH;
  const title = isCut ? '' : titleOf(row);
  return subjectOf({ toolCallId: '', title, toolKind: row.tool_kind, options: [], input }, row.folder);
}

const optionsOf = ({ options }: PermissionRow) => JSON.parse(options) as PermissionOption[];

function refused(reason: string): AppError {
  return new AppError('INVALID_REQUEST', { reason });
}

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
    options: optionsOf(row),
    form: formOf(row),
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

/** An open request as the updates of its session show it. */
export function toAsked(row: PermissionRow): Omit<QuestionEvent, 'kind'> {
  const { permissionId, title, toolKind, toolCallId, options, form, expiresAt } = toView(row);
  return {
    permissionId,
    title,
    toolKind,
    ...(toolCallId !== '' && { toolCallId }),
    options,
    ...(form !== null && { form }),
    expiresAt,
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

/** A stored rule has an id, one of the operator has none. */
export type NamedRule = PermissionRule & { readonly ruleId?: string };

const MAX_RULE_TEXT = 500;

/** The reply that follows from the settings, or from a rule, which the update of the decision then names. */
export function replyByRule(optionId: string | undefined, rule: NamedRule | undefined): PermissionReply {
  if (rule === undefined) return { optionId };
  const { ruleId } = rule;
  const text = cutText(ruleText(rule), MAX_RULE_TEXT);
  return { optionId, rule: { ...(ruleId !== undefined && { ruleId }), text } };
}

const WANTED = { allow: ['allow_once', 'allow_always'], deny: ['reject_once', 'reject_always'] } as const;

/** Returns the option of a question for a decision: `once` before `always`, because the next question may be a different one. */
export function optionFor(
  decision: 'allow' | 'deny',
  options: readonly PermissionOption[],
): PermissionOption | undefined {
  return WANTED[decision].flatMap((kind) => options.find((option) => option.kind === kind) ?? [])[0];
}

/** Returns the rules that remember an answer: for exactly this command, or exactly these paths. Empty if there is neither. */
export function rulesFrom(subject: PermissionSubject, decision: 'allow' | 'deny'): readonly PermissionRule[] {
  const { kind, command, words, paths } = subject;
  const exact = { kind, isExact: true, decision };
  if (command !== undefined) return withPaths({ ...exact, command }, subject);
  // What a shell interprets is never allowed by a rule, but it can be denied.
  if (words.length > 0) return decision === 'deny' ? [{ ...exact, command: words }] : [];
  return paths.length === 0 ? [] : withPaths(exact, subject);
}

/** A rule for each path of a subject. */
function withPaths(rule: PermissionRule, { paths, realPaths }: PermissionSubject): readonly PermissionRule[] {
  if (paths.length === 0) return [rule];
  if (rule.decision === 'deny') {
    const all = new Set([...paths, ...realPaths].filter((path) => path !== undefined));
    return [...all].map((path) => ({ ...rule, path }));
  }
  // A link may lead elsewhere by the time that the rule counts.
  return paths.every((path, index) => realPaths[index] === path) ? paths.map((path) => ({ ...rule, path })) : [];
}
