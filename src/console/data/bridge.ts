import type { ChangesPage, DiffView, FolderPage, MergeResult, UndoResult } from '../../bridge/contract/files.ts';
import type { SubmittedJob } from '../../bridge/contract/jobs.ts';
import type {
  NewSchedule,
  Schedule,
  ScheduleChanges,
  SchedulePage,
  ScheduleQuery,
} from '../../bridge/contract/schedules.ts';
import type { UploadedAttachment } from '../../bridge/contract/session.ts';
import type { AgentList, AgentLogin, AgentTest, InstalledAgent } from '../../bridge/contract/surface.ts';
import type {
  Permission,
  PermissionAnswer,
  SessionChanges,
  SessionPage,
  SessionQuery,
  SessionView,
  StoredRule,
  Summary,
  TurnPage,
  UpdatePage,
  UpdateQuery,
} from '../../bridge/contract/workbench.ts';
import { createTrestleClient, type TrestleClient } from '../../client/trestle-client.ts';
import { bearerToken, forgetBearer, type SystemFacts } from './accounts.ts';
import { authorization, BASE, fetchNoting, readEarly, request } from './request.ts';

export type Turn = TurnPage['turns'][number];

/** Names a session: the owner is given where it is not the caller. */
export interface SessionName {
  readonly sessionId: string;
  readonly owner?: string | undefined;
}

/** One text for a session, to keep things by: several owners may have a session of the same name. */
export const keyOf = ({ sessionId, owner }: SessionName) => (owner === undefined ? sessionId : `${owner}/${sessionId}`);

/** Where the page of a session is; `own` is the owner that needs not be named. */
export function sessionAddress({ sessionId, owner }: Pick<Summary, 'sessionId' | 'owner'>, own: string): string {
  const query = owner === own ? '' : `?owner=${encodeURIComponent(owner)}`;
  return `/console/sessions/${encodeURIComponent(sessionId)}${query}`;
}

export const jobAddress = (jobId: string) => `/console/jobs/${encodeURIComponent(jobId)}`;

const place = ({ sessionId }: SessionName) => `/api/bridge/sessions/${encodeURIComponent(sessionId)}`;

export const listSessions = (query: SessionQuery) => request<SessionPage>('GET', '/api/bridge/sessions', { query });
export const readSession = (name: SessionName) =>
  request<SessionView>('GET', place(name), { query: { owner: name.owner } });
export const changeSession = (name: SessionName, changes: SessionChanges): Promise<Summary> =>
  request<{ session: Summary }>('PATCH', place(name), { query: { owner: name.owner }, body: changes }).then(
    ({ session }) => session,
  );
/** Sends a message to the running turn. */
export const steerSession = (name: SessionName, text: string) =>
  request<{ turnId: string }>('POST', `${place(name)}/steer`, { query: { owner: name.owner }, body: { text } });
/** Removes a message that waits. */
export const withdrawTurn = (name: SessionName, turnId: string) =>
  request('DELETE', `${place(name)}/turns/${encodeURIComponent(turnId)}`, { query: { owner: name.owner } });
/** Copies a session, whole or up to a turn. */
export const forkSession = (name: SessionName, turnId?: string) =>
  request<{ sessionId: string }>('POST', `${place(name)}/fork`, {
    query: { owner: name.owner },
    body: turnId === undefined ? {} : { turnId },
  });
/** What the turns of a session have changed in its folder, since the session or a turn began. */
export const listChanges = (name: SessionName, turnId?: string) =>
  request<ChangesPage>('GET', `${place(name)}/changes`, { query: { owner: name.owner, turnId } });
export const readDiff = (name: SessionName, path: string, turnId?: string) =>
  request<DiffView>('GET', `${place(name)}/changes/diff`, { query: { owner: name.owner, path, turnId } });
/** Puts the files of a turn back. */
export const undoTurn = (name: SessionName, turnId: string) =>
  request<UndoResult>('POST', `${place(name)}/undo`, { query: { owner: name.owner }, body: { turnId } });
/** Puts the changes of a worktree into the branch that is checked out in its repository. */
export const mergeSession = (name: SessionName, step?: number) =>
  request<MergeResult>('POST', `${place(name)}/merge`, {
    query: { owner: name.owner },
    body: step === undefined ? {} : { step },
  });
const UPLOAD_MS = 5 * 60_000;
/** Uploads a file for a later message. */
export const uploadFile = (file: File, team?: string) =>
  request<UploadedAttachment>('POST', '/api/bridge/attachments', { body: file, team, timeoutMs: UPLOAD_MS });
export const listTurns = (name: SessionName, before?: string) =>
  request<TurnPage>('GET', `${place(name)}/turns`, { query: { owner: name.owner, before } });
export const listUpdates = (name: SessionName, query: UpdateQuery) =>
  request<UpdatePage>('GET', `${place(name)}/updates`, { query: { ...query, owner: name.owner } });
/** How many updates of a session are read together. */
export const UPDATES_OF_PAGE = 300;

/** Begins to read the end of the session that the address names, if it names one: before its screen has been loaded. */
export function readNamedSession({ pathname, search }: Pick<Location, 'pathname' | 'search'>): void {
  const [, encoded] = /^\/console\/sessions\/([^/]+)$/.exec(pathname.slice(BASE.length)) ?? [];
  if (encoded === undefined) return;
  const owner = new URLSearchParams(search).get('owner') ?? undefined;
  readEarly(`/api/bridge/sessions/${encoded}/updates`, { limit: UPDATES_OF_PAGE, owner });
}
export const answerPermission = (permissionId: string, answer: PermissionAnswer): Promise<Permission> =>
  request<{ permission: Permission }>('POST', `/api/bridge/permissions/${permissionId}/answer`, { body: answer }).then(
    ({ permission }) => permission,
  );
/** The answers that are remembered for an owner, newest first. */
export const listRules = (owner: string) =>
  request<{ rules: StoredRule[] }>('GET', '/api/bridge/permission-rules', { query: { owner } }).then(
    ({ rules }) => rules,
  );
export const removeRule = (ruleId: string) =>
  request('DELETE', `/api/bridge/permission-rules/${encodeURIComponent(ruleId)}`);
export const listAgents = () => request<AgentList>('GET', '/api/bridge/agents').then(({ agents }) => agents);
const agentPlace = (providerId: string) => `/api/bridge/agents/${encodeURIComponent(providerId)}`;
/** The server gives up a little earlier. */
const TEST_MS = 130_000;
const INSTALL_MS = 5 * 60_000;
/** Runs one small turn with an agent. */
export const testAgent = (providerId: string) =>
  request<AgentTest>('POST', `${agentPlace(providerId)}/test`, { timeoutMs: TEST_MS });
export const installAgent = (providerId: string) =>
  request<InstalledAgent>('POST', `${agentPlace(providerId)}/install`, { timeoutMs: INSTALL_MS });
/** Logs in to an agent, or says what to run. */
export const logInAgent = (providerId: string, methodId?: string) =>
  request<AgentLogin>('POST', `${agentPlace(providerId)}/login`, {
    body: methodId === undefined ? {} : { methodId },
    timeoutMs: TEST_MS,
  });
/** Questions that wait for an answer. */
export const listPermissions = () =>
  request<{ permissions: Permission[] }>('GET', '/api/bridge/permissions').then(({ permissions }) => permissions);
export const listFolders = (path?: string, team?: string) =>
  request<FolderPage>('GET', '/api/bridge/folders', { query: { path }, team });

const SCHEDULES = '/api/bridge/schedules';
const schedulePlace = (scheduleId: string) => `${SCHEDULES}/${encodeURIComponent(scheduleId)}`;
type OneSchedule = { readonly schedule: Schedule };

export const listSchedules = (query: ScheduleQuery) => request<SchedulePage>('GET', SCHEDULES, { query });
export const createSchedule = (body: NewSchedule) => request<OneSchedule>('POST', SCHEDULES, { body });
export const readSchedule = (scheduleId: string) =>
  request<OneSchedule>('GET', schedulePlace(scheduleId)).then(({ schedule }) => schedule);
export const changeSchedule = (scheduleId: string, body: ScheduleChanges) =>
  request<OneSchedule>('PATCH', schedulePlace(scheduleId), { body });
export const runSchedule = (scheduleId: string) => request<SubmittedJob>('POST', `${schedulePlace(scheduleId)}/run`);
export const removeSchedule = (scheduleId: string) => request('DELETE', schedulePlace(scheduleId));

export const exportAddress = (name: SessionName, form: 'markdown' | 'json') =>
  `${BASE}${place(name)}/export?form=${form}${name.owner === undefined ? '' : `&owner=${encodeURIComponent(name.owner)}`}`;

/** Where programs read a session. */
export const sessionPath = (name: SessionName) =>
  `${place(name)}${name.owner === undefined ? '' : `?owner=${encodeURIComponent(name.owner)}`}`;

const clients = new Map<string, TrestleClient>();

/** Runs turns over HTTP, for a team where one is named. `/acp` takes no cookies: a person's cookie is exchanged for a short token. */
export function trestle(signIn: SystemFacts['signIn'], team = ''): TrestleClient {
  const known = clients.get(team);
  if (known !== undefined) return known;
  const client = createTrestleClient({
    url: `${location.origin}${BASE}`,
    ...(team !== '' && { team }),
    fetch: async (input, init) => {
      async function send(): Promise<Response> {
        const headers = new Headers(init?.headers);
        const credential = signIn === 'session' ? { authorization: `Bearer ${await bearerToken()}` } : authorization();
        for (const [name, value] of Object.entries(credential)) headers.set(name, value);
        return fetchNoting(input, { ...init, headers, credentials: 'omit' });
      }
      const response = await send();
      if (response.status !== 401 || signIn !== 'session') return response;
      // The login session of the token has ended since. Anyone who is still logged in gets another token; the refusal leads
      // everyone else to the login.
      forgetBearer();
      return send();
    },
  });
  clients.set(team, client);
  return client;
}
