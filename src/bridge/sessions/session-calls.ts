import { createHash } from 'node:crypto';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../platform/json-rpc/method-table.ts';
import type { Attachments } from '../attachments/create-attachments.ts';
import { readGivenFiles } from '../attachments/given-files.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { SessionName, SessionResult, StartParams, TurnParams } from '../contract/session.ts';
import { readPlan, readPlanChange } from '../multi-agent/multi-agent-plan.ts';
import type { PrincipalFor } from '../principal.ts';
import { wantsGateway } from '../routing/resolve-route.ts';
import type { JobTurnRequest, TurnRequest } from './live-session.ts';
import { readMcpServers, type SessionMcpServer } from './mcp-servers.ts';
import type { SessionOrchestrator } from './session-orchestrator.ts';

type Call = MethodCall<BridgeClient>;

/** The session methods as their callers mean them. */
export interface SessionCalls {
  turn(method: TurnRequest['method'], params: StartParams, call: Call): Promise<SessionResult | RawJson>;
  /** Runs the turn of a job; undefined while its session is not idle. Rejects where `session.start` would be refused. */
  jobTurn(job: JobCall, signal: AbortSignal): Promise<SessionResult | undefined>;
  cancel(params: SessionName, call: Call): Promise<{ accepted: true }>;
  close(params: SessionName, call: Call): Promise<{ accepted: true }>;
}

/** A job as a turn: nobody waits for its answer at the other end of a connection. */
export interface JobCall {
  readonly jobId: string;
  readonly owner: string;
  /** The member who submitted it, where the owner is a team; empty otherwise. */
  readonly member: string;
  readonly params: TurnParams;
  /** Of a session that it starts. */
  readonly mcpServers: readonly SessionMcpServer[];
  readonly newSession: boolean;
  readonly isRetry: boolean;
  /** It is run again when the bridge dies while it runs. */
  readonly survivesRestart: boolean;
}

export interface SessionCallsOptions {
  readonly orchestrator: Pick<SessionOrchestrator, 'turn' | 'jobTurn' | 'cancel' | 'close'>;
  /** The agents of the catalog. */
  readonly agentIds: readonly string[];
  /** Whom a job works for. */
  readonly principalFor: PrincipalFor;
  /** Throws ATTACHMENT_NOT_FOUND for files that the owner does not have. */
  readonly checkFiles: Attachments['check'];
}

const MAX_KEY = 256;

export function createSessionCalls(options: SessionCallsOptions): SessionCalls {
  const { orchestrator, agentIds, principalFor, checkFiles } = options;
  /** What a caller asks for, checked as far as it can be before the session is known. */
  function read(params: StartParams, method: TurnRequest['method']) {
    const { sessionId, threadId = '', taskPrompt = '', routing = {} } = params;
    checkNames(sessionId, threadId);
    const isMultiAgent = params.multiAgent === true || params.mode === 'multi-agent';
    if (isMultiAgent && wantsGateway(routing)) throw new AppError('GATEWAY_MULTI_AGENT_CONFLICT');
    if (!isMultiAgent && taskPrompt === '') throw missing('taskPrompt');
    checkWorktree(params, method);
    const readSteps = method === 'session.message' ? readPlanChange : readPlan;
    const plan = isMultiAgent ? readSteps(routing, taskPrompt, agentIds) : undefined;
    const files = readGivenFiles(params);
    const { workingDirectory = '' } = params;
    const mcpServers = readMcpServers(method === 'session.start' ? params.mcpServers : []);
    return { sessionId, threadId, prompt: taskPrompt, files, workingDirectory, routing, plan, mcpServers };
  }

  return {
    async turn(method, params, call) {
      const { caller: client } = call;
      const { resume } = client;
      if (resume.idempotencyKey.length > MAX_KEY) {
        throw new AppError('INVALID_PARAMS', { reason: `an Idempotency-Key has at most ${MAX_KEY} characters` });
      }
      const { principal } = client.caller;
      const asked = read(params, method);
      const request: TurnRequest = {
        ...asked,
        method,
        principal,
        uploader: principal.id,
        ...(asked.files.length > 0 && { check: () => checkFiles(principal.id, asked.files) }),
        hop: client.caller.forwarded?.hop ?? client.caller.hop ?? 0,
        ...identify(method, call),
        idempotencyKey: resume.idempotencyKey,
        accepted: () => call.accept(),
        ...askOf(client, params.sessionId),
      };
      return orchestrator.turn(request, client);
    },
    async jobTurn({ jobId, owner, member, params, mcpServers, newSession, isRetry, survivesRestart }, signal) {
      const request: JobTurnRequest = {
        ...read(params, 'session.start'),
        mcpServers,
        principal: await principalFor(owner, member),
        uploader: owner,
        hop: 0,
        jobId,
        ...(survivesRestart && { taskId: jobId }),
        requestId: JSON.stringify(jobId),
        requestFingerprint: '',
        idempotencyKey: '',
        accepted() {},
        newSession,
        isRetry,
      };
      const result = await orchestrator.jobTurn(request, signal);
      return result === undefined ? undefined : (JSON.parse(result.text) as SessionResult);
    },
    async cancel(params, call) {
      await orchestrator.cancel(call.caller.caller.principal, params);
      return { accepted: true };
    },
    async close(params, call) {
      await orchestrator.close(call.caller.caller.principal, params);
      return { accepted: true };
    },
  };
}

/** Also refuses what would have no effect: people would believe that their checkout is left alone. */
function checkWorktree({ routing = {}, workingDirectory = '' }: StartParams, method: TurnRequest['method']): void {
  const { worktree = false } = routing;
  if (worktree === false) return;
  const reason =
    method === 'session.message'
      ? 'routing.worktree belongs to session.start: leave it out of session.message'
      : wantsGateway(routing)
        ? 'routing.worktree cannot be used with a gateway: leave it out'
        : workingDirectory === ''
          ? 'routing.worktree needs workingDirectory: name the top folder of a repository'
          : undefined;
  if (reason !== undefined) throw new AppError('INVALID_PARAMS', { reason });
}

function missing(field: string): AppError {
  const message = 'is needed, and not empty';
  return new AppError('INVALID_PARAMS', { reason: `${field} ${message}`, issues: [{ path: `/${field}`, message }] });
}

/** Half a character cannot be stored as it is, and two of them would become the same name. */
function checkNames(...names: readonly string[]): void {
  if (names.every((name) => name.isWellFormed())) return;
  throw new AppError('INVALID_PARAMS', { reason: 'sessionId and threadId must be whole characters' });
}

/** A call of any client is repeated over HTTP: a socket that comes back gets updates, but no answer. */
function identify(method: string, call: Call): Pick<TurnRequest, 'requestId' | 'requestFingerprint'> {
  const text = JSON.stringify([method, call.params]);
  return {
    requestId: JSON.stringify(call.id ?? null),
    requestFingerprint: createHash('sha256').update(text).digest('hex'),
  };
}

function askOf({ ask }: BridgeClient, sessionId: string): Pick<TurnRequest, 'ask'> {
  return ask === undefined ? {} : { ask: (question, signal) => ask(sessionId, question, signal) };
}
