import type { ChangesPage, DiffView, FileView, MergeResult, UndoResult } from '../bridge/contract/files.ts';
import type { UploadedAttachment } from '../bridge/contract/session.ts';
import type { AgentEntry, AgentList, AgentLogin, AgentTest, InstalledAgent } from '../bridge/contract/surface.ts';
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
} from '../bridge/contract/workbench.ts';
import type { CallOptions } from './bridge-transport.ts';
import type { RequestText, RequestWorkbench } from './http-exchange.ts';

/** Longer than the server takes at most. */
const AGENT_CALL_MS = 5 * 60_000;

type OfOwner = { readonly owner?: string };

interface SinceTurn extends OfOwner {
  readonly turnId?: string;
}

/** Sessions as lists and histories show them (`/api/bridge/sessions`). A session of another owner is named with `owner`. */
export interface Sessions {
  /**
   * Lists sessions, newest first, with the number of sessions in each state.
   *
   * @example
   * ```ts
   * const { sessions, counts } = await trestle.sessions.list({ state: 'idle', limit: 10 });
   * console.log(counts.running, sessions.map(({ title }) => title));
   * ```
   */
  list(query?: SessionQuery, options?: CallOptions): Promise<SessionPage>;
  /**
   * Returns one session, and the turns that wait in it.
   *
   * @example
   * ```ts
   * await trestle.session('shown').start('Hello').result;
   * console.log((await trestle.sessions.get('shown')).session.costUsd);
   * ```
   */
  get(sessionId: string, query?: OfOwner, options?: CallOptions): Promise<SessionView>;
  /**
   * Changes the title of a session, archives or pins it.
   *
   * @example
   * ```ts
   * await trestle.session('renamed').start('Hello').result;
   * console.log((await trestle.sessions.update('renamed', { title: 'Greeting' })).title);
   * ```
   */
  update(
    sessionId: string,
    changes: SessionChanges & { readonly owner?: string },
    options?: CallOptions,
  ): Promise<Summary>;
  /**
   * Returns the turns of a session, newest first.
   *
   * @example
   * ```ts
   * await trestle.session('asked').start('Hello').result;
   * for (const { prompt, output } of (await trestle.sessions.turns('asked')).turns) console.log(prompt, output);
   * ```
   */
  turns(
    sessionId: string,
    query?: { readonly owner?: string; readonly limit?: number; readonly before?: string },
    options?: CallOptions,
  ): Promise<TurnPage>;
  /**
   * Returns updates of a session in order: the last ones, or those around a number.
   *
   * @example
   * ```ts
   * await trestle.session('told').start('Hello').result;
   * const { updates } = await trestle.sessions.updates('told', { kinds: 'text' });
   * console.log(updates.length);
   * ```
   */
  updates(sessionId: string, query?: UpdateQuery, options?: CallOptions): Promise<UpdatePage>;
  /**
   * Lists the files that the turns of a session have changed in its folder, since the session or the turn `turnId` began.
   *
   * @example
   * ```ts
   * await trestle.session('worked').start('Hello').result;
   * const { files } = await trestle.sessions.changes('worked');
   * console.log(files.map(({ path, added, removed }) => `${path} +${added} -${removed}`));
   * ```
   */
  changes(sessionId: string, query?: SinceTurn, options?: CallOptions): Promise<ChangesPage>;
  /**
   * Returns what the turns of a session have changed in one file, as a unified diff.
   *
   * @example
   * ```ts
   * await trestle.session('edited').start('Hello').result;
   * const { files } = await trestle.sessions.changes('edited');
   * console.log(`${files.length} files`);
   * for (const { path } of files) console.log((await trestle.sessions.diff('edited', path)).unified);
   * ```
   */
  diff(sessionId: string, path: string, query?: SinceTurn, options?: CallOptions): Promise<DiffView>;
  /**
   * Reads a file in the working directory of a session, at most 1 MiB of it.
   *
   * @example
   * ```ts
   * await trestle.session('reader').start('Hello').result;
   * const file = trestle.sessions.file('reader', 'notes.txt');
   * console.log(await file.then(({ content }) => content, ({ message }: Error) => message));
   * ```
   */
  file(sessionId: string, path: string, query?: OfOwner, options?: CallOptions): Promise<FileView>;
  /**
   * Reads a whole session as Markdown, or as JSON, in parts. Each part is a request of its own, sent when it is wanted; `timeoutMs` is for each.
   *
   * @example
   * ```ts
   * await trestle.session('kept').start('Hello').result;
   * for await (const part of trestle.sessions.export('kept')) console.log(part);
   * ```
   */
  export(
    sessionId: string,
    query?: { readonly owner?: string; readonly form?: 'markdown' | 'json' },
    options?: CallOptions,
  ): AsyncIterable<string>;
  /**
   * Restores the files that a turn has changed to their state before the turn. Fails with FILES_CHANGED, and `data.files`, when one
   * of them was changed since: then nothing is undone.
   *
   * @example
   * ```ts
   * await trestle.session('mistaken').start('Hello').result;
   * const { files, base } = await trestle.sessions.changes('mistaken');
   * console.log(files.length > 0 ? (await trestle.sessions.undo('mistaken', base.turnId)).restored : 'nothing to undo');
   * ```
   */
  undo(sessionId: string, turnId: string, query?: OfOwner, options?: CallOptions): Promise<UndoResult>;
  /**
   * Merges the worktree of a session that was started with `routing.worktree` into the branch that is checked out in its repository.
   * Of a run, one step is merged: the winner of a race, or `step`. Fails with MERGE_REFUSED, and `data.files`, where lines collide or files are not committed.
   *
   * @example
   * ```ts
   * await trestle.session('apart').start('Hello').result;
   * const merged = trestle.sessions.merge('apart').then(({ files }) => files.join());
   * console.log(await merged.catch(({ message }: Error) => message));
   * ```
   */
  merge(
    sessionId: string,
    query?: { readonly owner?: string; readonly step?: number },
    options?: CallOptions,
  ): Promise<MergeResult>;
  /**
   * Sends a message to the running turn, and returns the turn. Fails with NOT_STEERABLE when no turn runs or its agent takes
   * none: then send it with `session.message`.
   *
   * @example
   * ```ts
   * const turn = trestle.session('steered').start('Write a long story');
   * const steered = trestle.sessions.steer('steered', 'Make it shorter');
   * console.log(await steered.catch(({ message }: Error) => message));
   * await turn.result;
   * ```
   */
  steer(sessionId: string, text: string, query?: OfOwner, options?: CallOptions): Promise<{ turnId: string }>;
  /**
   * Removes a message that waits for the running turn; its turn ends as cancelled. `get` lists them as `queued`. Fails with
   * TURN_NOT_WAITING when the turn has begun.
   *
   * @example
   * ```ts
   * await trestle.session('line').start('Hello').result;
   * const { queued } = await trestle.sessions.get('line');
   * for (const { turnId } of queued) await trestle.sessions.withdraw('line', turnId);
   * ```
   */
  withdraw(sessionId: string, turnId: string, query?: OfOwner, options?: CallOptions): Promise<{ accepted: true }>;
  /**
   * Copies a session with its conversation, whole or up to the turn `turnId`, and returns the id of the copy. Fails with
   * NOT_FORKABLE when the agent cannot.
   *
   * @example
   * ```ts
   * await trestle.session('original').start('My name is Ada').result;
   * const { sessionId } = await trestle.sessions.fork('original');
   * console.log((await trestle.session(sessionId).message('What is my name?').result).output);
   * ```
   */
  fork(sessionId: string, query?: SinceTurn, options?: CallOptions): Promise<{ sessionId: string }>;
}

/** What agents ask people, and the answers. Agents of a turn with `routing: { permissions: 'ask' }` wait for them. */
export interface Permissions {
  /**
   * Lists questions that wait for an answer, oldest first; with `state: 'all'` those of the past too, newest first.
   *
   * @example
   * ```ts
   * const questions = await trestle.permissions.list();
   * console.log(questions.map(({ permissionId, title }) => `${permissionId} ${title}`));
   * ```
   */
  list(
    query?: { readonly state?: 'open' | 'all'; readonly sessionId?: string; readonly owner?: string },
    options?: CallOptions,
  ): Promise<readonly Permission[]>;
  /**
   * Answers a question. Only the first answer counts: a later one fails with PERMISSION_ANSWERED. A question with a `form` is
   * answered with `values`, or declined with `decision: 'deny'`.
   *
   * @example
   * ```ts
   * const [question] = await trestle.permissions.list();
   * if (question !== undefined) {
   *   await trestle.permissions.answer(question.permissionId, { decision: 'deny', reason: 'Not on a Friday' });
   * }
   * ```
   */
  answer(permissionId: string, answer: PermissionAnswer, options?: CallOptions): Promise<Permission>;
  /**
   * Lists answers that are remembered, newest first.
   *
   * @example
   * ```ts
   * const rules = await trestle.permissions.rules();
   * console.log(rules.map(({ when, decision }) => `${decision} ${when.command ?? when.path}`));
   * ```
   */
  rules(query?: OfOwner, options?: CallOptions): Promise<readonly StoredRule[]>;
  /**
   * Forgets a remembered answer.
   *
   * @example
   * ```ts
   * for (const { ruleId } of await trestle.permissions.rules()) await trestle.permissions.forget(ruleId);
   * ```
   */
  forget(ruleId: string, options?: CallOptions): Promise<void>;
}

/** The agents of the bridge, as people need to know them. `capabilities()` has what an app needs to choose one. */
export interface Agents {
  /**
   * Lists the agents with their state, what to do where that is not `ok`, and what can be done with their sessions.
   *
   * @example
   * ```ts
   * for (const { providerId, state, advice } of await trestle.agents.list()) console.log(providerId, state, advice);
   * ```
   */
  list(options?: CallOptions): Promise<readonly AgentEntry[]>;
  /**
   * Runs one small turn with an agent, and returns how it came out and how long it took.
   *
   * @example
   * ```ts
   * const { status, firstMs } = await trestle.agents.test('builtin');
   * ```
   */
  test(providerId: string, options?: CallOptions): Promise<AgentTest>;
  /**
   * Installs an agent on the server. For administrators with a login from the last five minutes, and the operator.
   *
   * @example
   * ```ts
   * const { version, offered } = await trestle.agents.install('claude');
   * ```
   */
  install(providerId: string, options?: CallOptions): Promise<InstalledAgent>;
  /**
   * Logs in to an agent, or returns the command to run. For administrators with a login from the last five minutes, and the operator.
   *
   * @example
   * ```ts
   * const { loggedIn, text } = await trestle.agents.login('gemini');
   * ```
   */
  login(providerId: string, request?: { readonly methodId?: string }, options?: CallOptions): Promise<AgentLogin>;
}

/** Files for prompts, sent ahead: small ones can also travel in the call itself. */
export interface Attachments {
  /**
   * Uploads a file, which is kept for 24 hours. Its id goes into `attachments` of `start`, `message` and `jobs.submit`.
   *
   * @example
   * ```ts
   * const { attachmentId } = await trestle.attachments.upload(new TextEncoder().encode('a,b'), { name: 'table.csv' });
   * await trestle.session('table').start('What is in the table?', { attachments: [{ attachmentId }] }).result;
   * ```
   */
  upload(
    file: Blob | Uint8Array<ArrayBuffer>,
    about: { readonly name: string; readonly contentType?: string },
    options?: CallOptions,
  ): Promise<UploadedAttachment>;
}

export function createSessions(request: RequestWorkbench, requestText: RequestText): Sessions {
  const pathOf = (sessionId: string, rest = '') => `sessions/${encodeURIComponent(sessionId)}${rest}`;
  return {
    list: (query = {}, options) => request({ path: 'sessions', query }, options),
    get: (sessionId, query = {}, options) => request({ path: pathOf(sessionId), query }, options),
    async update(sessionId, { owner, ...body }, options) {
      const path = pathOf(sessionId);
      const changed = await request<{ session: Summary }>({ method: 'PATCH', path, query: { owner }, body }, options);
      return changed.session;
    },
    turns: (sessionId, query = {}, options) => request({ path: pathOf(sessionId, '/turns'), query }, options),
    updates: (sessionId, query = {}, options) => request({ path: pathOf(sessionId, '/updates'), query }, options),
    changes: (sessionId, query = {}, options) =>
      request({ path: pathOf(sessionId, '/changes'), query: { ...query } }, options),
    diff: (sessionId, path, query = {}, options) =>
      request({ path: pathOf(sessionId, '/changes/diff'), query: { ...query, path } }, options),
    undo: (sessionId, turnId, query = {}, options) =>
      request({ method: 'POST', path: pathOf(sessionId, '/undo'), query: { ...query }, body: { turnId } }, options),
    merge(sessionId, { owner, step } = {}, options) {
      const body = step === undefined ? {} : { step };
      return request({ method: 'POST', path: pathOf(sessionId, '/merge'), query: { owner }, body }, options);
    },
    file: (sessionId, path, query = {}, options) =>
      request({ path: pathOf(sessionId, '/files'), query: { ...query, path } }, options),
    async *export(sessionId, query = {}, options) {
      for (let cursor: string | undefined = ''; cursor !== undefined; ) {
        const page = await requestText({ path: pathOf(sessionId, '/export'), query: { ...query, cursor } }, options);
        yield page.text;
        cursor = page.nextCursor;
      }
    },
    steer: (sessionId, text, query = {}, options) =>
      request({ method: 'POST', path: pathOf(sessionId, '/steer'), query: { ...query }, body: { text } }, options),
    withdraw(sessionId, turnId, query = {}, options) {
      const path = pathOf(sessionId, `/turns/${encodeURIComponent(turnId)}`);
      return request({ method: 'DELETE', path, query: { ...query } }, options);
    },
    fork(sessionId, { owner, turnId } = {}, options) {
      const body = turnId === undefined ? {} : { turnId };
      return request({ method: 'POST', path: pathOf(sessionId, '/fork'), query: { owner }, body }, options);
    },
  };
}

export function createAgents(request: RequestWorkbench): Agents {
  const act = (providerId: string, action: string, body?: object) => ({
    method: 'POST' as const,
    path: `agents/${encodeURIComponent(providerId)}/${action}`,
    ...(body !== undefined && { body }),
  });
  return {
    list: async (options) => (await request<AgentList>({ path: 'agents' }, options)).agents,
    test: (providerId, options) => request(act(providerId, 'test'), { timeoutMs: AGENT_CALL_MS, ...options }),
    install: (providerId, options) => request(act(providerId, 'install'), { timeoutMs: AGENT_CALL_MS, ...options }),
    login: (providerId, body = {}, options) =>
      request(act(providerId, 'login', body), { timeoutMs: AGENT_CALL_MS, ...options }),
  };
}

export function createAttachments(request: RequestWorkbench): Attachments {
  return {
    upload(content, { name, contentType }, options) {
      const ofBlob = content instanceof Blob ? content.type : '';
      const headers = {
        'content-type': contentType || ofBlob || 'application/octet-stream',
        'x-file-name': encodeURIComponent(name),
      };
      return request({ method: 'POST', path: 'attachments', file: { content, headers } }, options);
    },
  };
}

export function createPermissions(request: RequestWorkbench): Permissions {
  return {
    list: async (query = {}, options) =>
      (await request<{ permissions: Permission[] }>({ path: 'permissions', query }, options)).permissions,
    async answer(permissionId, body, options) {
      const path = `permissions/${encodeURIComponent(permissionId)}/answer`;
      return (await request<{ permission: Permission }>({ method: 'POST', path, body }, options)).permission;
    },
    rules: async (query = {}, options) =>
      (await request<{ rules: StoredRule[] }>({ path: 'permission-rules', query }, options)).rules,
    async forget(ruleId, options) {
      await request({ method: 'DELETE', path: `permission-rules/${encodeURIComponent(ruleId)}` }, options);
    },
  };
}
