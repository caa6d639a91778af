import { AppError } from '../../platform/errors/app-error.ts';
import { defineRoute, type ErrorForBody, type RequestHead, type Route } from '../../platform/http/surface.ts';
import { may, ownersSought } from '../../platform/identity/principal.ts';
import { refusalBody } from '../../platform/json-rpc/answer-http.ts';
import { hybridEnvelope } from '../../platform/json-rpc/envelope.ts';
import type { BridgeAccess, BridgeCaller } from '../access.ts';
import { decodeName } from '../artifacts/artifact-route.ts';
import type { Attachments } from '../attachments/create-attachments.ts';
import { FolderPage, FolderQuery } from '../contract/files.ts';
import { SubmittedJob } from '../contract/jobs.ts';
import * as scheduling from '../contract/schedules.ts';
import { UploadedAttachment } from '../contract/session.ts';
import { AgentList, AgentLogin, AgentTest, InstalledAgent, LoginRequest } from '../contract/surface.ts';
import * as contract from '../contract/workbench.ts';
import { Explanation, NodeList, type NodeReports } from '../forwarding/node-health.ts';
import type { Schedules } from '../schedules/create-schedules.ts';
import type { AgentCare } from './agent-care.ts';
import type { FolderList } from './folders.ts';
import type { Permissions } from './permissions.ts';
import { type SessionParts, sessionRows } from './session-rows.ts';

export interface WorkbenchParts extends SessionParts {
  readonly folders: FolderList;
  readonly nodes: NodeReports;
  agents(): AgentList;
  readonly agentCare: Omit<AgentCare, 'stop'>;
  readonly permissions: Permissions;
  readonly schedules: Schedules;
  readonly attachments: Pick<Attachments, 'upload'>;
}

/** Whether a path belongs to the second surface, whose errors have another shape. */
function isWorkbench(path: string): boolean {
  return path === '/api/bridge' || path.startsWith('/api/bridge/');
}

/** The body of a refusal, in the shape of the surface that the path belongs to. */
export function bridgeErrorBody(error: ErrorForBody, { path }: Pick<RequestHead, 'path'>): unknown {
  if (isWorkbench(path)) return workbenchErrorBody(error);
  // Callers know one code for a wrong HTTP method and for what is no JSON-RPC request.
  const isMethod = error.code === 'METHOD_NOT_ALLOWED';
  return refusalBody(hybridEnvelope, isMethod ? { ...error, code: 'INVALID_REQUEST' } : error);
}

function workbenchErrorBody({ code, message, requestId, details }: ErrorForBody) {
  const hasDetails = Object.keys(details).length > 0;
  return { error: code.toLowerCase(), message, requestId, ...(hasDetails && { details }) };
}

/** The values of a form are the largest answers. */
const MAX_ANSWER_BYTES = 128 * 1024;
const MAX_SCHEDULE_BYTES = 256 * 1024;
const MAX_UPLOAD_BYTES = 25 * 1024 * 1024;

/** THE TABLE of the second surface: each row names its guard. What a row shows is limited to what the caller sees. */
export function workbenchRoutes(
  { workbench: guard, freshAdmin }: Pick<BridgeAccess, 'workbench' | 'freshAdmin'>,
  parts: WorkbenchParts,
): readonly Route[] {
  const { sessions, history, folders, nodes, permissions, schedules, attachments, agentCare } = parts;

  function onlyForAll({ principal }: BridgeCaller): void {
    if (ownersSought(principal) !== undefined) throw new AppError('FORBIDDEN');
  }

  const rows = [
    ...sessionRows(guard, parts),
    defineRoute(
      'POST /api/bridge/attachments',
      guard,
      {
        summary:
          'Uploads a file for a later prompt: the bytes as the body, with `content-type`, and the percent-encoded name in `x-file-name`. At most 25 MiB, kept for 24 hours.',
        raw: true,
        anyType: true,
        bodyLimit: MAX_UPLOAD_BYTES,
        response: { 201: UploadedAttachment },
      },
      ({ caller: { principal }, head: { headers }, body }) => {
        if (!may(principal, 'start', principal.id)) throw new AppError('FORBIDDEN');
        const name = String(headers['x-file-name'] ?? 'file');
        return attachments.upload(principal.id, decodeName(name), headers['content-type'] ?? '', body);
      },
    ),
    defineRoute(
      'GET /api/bridge/permissions',
      guard,
      {
        summary: 'Questions of agents that wait for an answer.',
        query: contract.PermissionQuery,
        response: { 200: contract.PermissionPage },
      },
      async ({ caller: { principal }, query: { sessionId, ...query } }) => {
        if (sessionId === undefined) return { permissions: await permissions.list(principal, query) };
        const { key: sessionKey, owner } = await sessions.find(principal, sessionId, query.owner);
        return { permissions: await permissions.list(principal, { ...query, sessionKey, owner }) };
      },
    ),
    defineRoute(
      'POST /api/bridge/permissions/:permissionId/answer',
      guard,
      {
        summary: 'Answers a question of an agent. The first answer counts.',
        body: contract.PermissionAnswer,
        bodyLimit: MAX_ANSWER_BYTES,
        response: { 200: contract.PermissionOnly },
      },
      async ({ caller, params, body }) => {
        const { optionId, decision, values } = body;
        if ([optionId, decision, values].filter((one) => one !== undefined).length !== 1) {
          throw new AppError('INVALID_REQUEST', { reason: 'give optionId, decision or values, and only one of them' });
        }
        return { permission: await permissions.answer(caller.principal, params.permissionId, body) };
      },
    ),
    defineRoute(
      'GET /api/bridge/permission-rules',
      guard,
      {
        summary: 'Lists the remembered answers.',
        query: contract.OwnerQuery,
        response: { 200: contract.RulePage },
      },
      async ({ caller, query }) => ({ rules: await permissions.rules(caller.principal, query.owner) }),
    ),
    defineRoute(
      'DELETE /api/bridge/permission-rules/:ruleId',
      guard,
      { summary: 'Forgets a remembered answer.', response: { 200: contract.LiveAccepted } },
      async ({ caller, params }) => {
        await permissions.removeRule(caller.principal, params.ruleId);
        return { accepted: true };
      },
    ),
    defineRoute(
      'GET /api/bridge/schedules',
      guard,
      {
        summary: 'Schedules, newest first.',
        query: scheduling.ScheduleQuery,
        response: { 200: scheduling.SchedulePage },
      },
      ({ caller, query }) => schedules.list(caller.principal, query),
    ),
    defineRoute(
      'POST /api/bridge/schedules',
      guard,
      {
        summary: 'Creates a schedule, which runs a task as a job at set times.',
        body: scheduling.NewSchedule,
        bodyLimit: MAX_SCHEDULE_BYTES,
        response: { 201: scheduling.ScheduleOnly },
      },
      async ({ caller, body }) => ({ schedule: await schedules.create(caller.principal, body) }),
    ),
    defineRoute(
      'GET /api/bridge/schedules/:scheduleId',
      guard,
      { summary: 'One schedule, with its next times.', response: { 200: scheduling.ScheduleOnly } },
      async ({ caller, params }) => ({ schedule: await schedules.show(caller.principal, params.scheduleId) }),
    ),
    defineRoute(
      'PATCH /api/bridge/schedules/:scheduleId',
      guard,
      {
        summary: 'Changes a schedule; `enabled: false` pauses it.',
        body: scheduling.ScheduleChanges,
        bodyLimit: MAX_SCHEDULE_BYTES,
        response: { 200: scheduling.ScheduleOnly },
      },
      async ({ caller, params, body }) => ({
        schedule: await schedules.change(caller.principal, params.scheduleId, body),
      }),
    ),
    defineRoute(
      'DELETE /api/bridge/schedules/:scheduleId',
      guard,
      { summary: 'Removes a schedule. Its jobs stay.', response: { 200: contract.LiveAccepted } },
      async ({ caller, params }) => {
        await schedules.remove(caller.principal, params.scheduleId);
        return { accepted: true };
      },
    ),
    defineRoute(
      'POST /api/bridge/schedules/:scheduleId/run',
      guard,
      { summary: 'Runs a schedule now, in addition to its set times.', response: { 201: SubmittedJob } },
      ({ caller, params }) => schedules.run(caller.principal, params.scheduleId),
    ),
    defineRoute(
      'GET /api/bridge/audit',
      guard,
      {
        summary: 'Decisions about permissions, and what agents kept of closed sessions, newest first.',
        query: contract.AuditQuery,
        response: { 200: contract.AuditPage },
      },
      ({ caller, query }) => history.audit(caller.principal, query),
    ),
    defineRoute(
      'GET /api/bridge/folders',
      guard,
      {
        summary: 'The folders in which agents may work, and the folders inside of one of them.',
        query: FolderQuery,
        response: { 200: FolderPage },
      },
      ({ caller, query }) => folders.list(query.path, caller.principal.id),
    ),
    defineRoute(
      'GET /api/bridge/agents',
      guard,
      { summary: 'The agents, their state, and what can be done with their sessions.', response: { 200: AgentList } },
      () => parts.agents(),
    ),
    defineRoute(
      'POST /api/bridge/agents/:providerId/test',
      guard,
      { summary: 'Runs one small turn ("Say OK") with an agent, within two minutes.', response: { 200: AgentTest } },
      ({ caller, params }) => agentCare.test(caller.principal, params.providerId),
    ),
    defineRoute(
      'POST /api/bridge/agents/:providerId/install',
      freshAdmin,
      {
        summary:
          'Installs one of the agents that `trestle agents` lists, with npm, within four minutes. For administrators with a login from the last five minutes.',
        response: { 200: InstalledAgent },
      },
      ({ caller, params }) => agentCare.install(caller.principal, params.providerId),
    ),
    defineRoute(
      'POST /api/bridge/agents/:providerId/login',
      freshAdmin,
      {
        summary:
          'Logs in to an agent if the agent offers a login without a terminal; otherwise returns the command to run. For administrators with a login from the last five minutes.',
        body: LoginRequest,
        response: { 200: AgentLogin },
      },
      ({ caller, params, body }) => agentCare.logIn(caller.principal, params.providerId, body.methodId),
    ),
    defineRoute(
      'GET /api/bridge/nodes',
      guard,
      {
        summary: 'The other bridges that this one is configured with. For callers that see all work.',
        response: { 200: NodeList },
      },
      ({ caller }) => {
        onlyForAll(caller);
        return nodes.list();
      },
    ),
    defineRoute(
      'GET /api/bridge/nodes/explain',
      guard,
      {
        summary: 'Returns where a call would be forwarded, and why. For callers that see all work.',
        query: contract.ExplainQuery,
        response: { 200: Explanation },
      },
      ({ caller, query }) => {
        onlyForAll(caller);
        return nodes.explain(query.method, query.sessionId);
      },
    ),
  ];
  return rows.map((row) => ({ ...row, schema: { ...row.schema, error: contract.WorkbenchError } }));
}
