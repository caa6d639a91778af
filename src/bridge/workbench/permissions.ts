import { joinSignals, pause, type Repeated, repeat } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { may, ownersSought, type Principal, sees } from '../../platform/identity/principal.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentTurn, AskPermission, PermissionReply } from '../agents/agent-provider.ts';
import type { BridgeEvent } from '../contract/surface.ts';
import type { Permission, PermissionAnswer, StoredRule } from '../contract/workbench.ts';
import { type Lease, repeatAfterDeaths } from '../instances/instance-registry.ts';
import { mergedPages } from '../principal.ts';
import type { SessionMcpServer } from '../sessions/mcp-servers.ts';
import type { BridgeSchema, PermissionRow } from '../storage/bridge-schema.ts';
import { createPermissionStore } from '../storage/workbench-stores.ts';
import {
  type AskingTurn,
  askedSubject,
  endOf,
  isAnswered,
  isRemembered,
  type NamedRule,
  NO_ANSWER,
  needsInput,
  optionFor,
  replyByRule,
  replyOf,
  toAsked,
  toRow,
  toRule,
  toRuleRow,
  toStoredRule,
  toView,
} from './permission-rows.ts';
import {
  decide,
  deniedPaths,
  followLinks,
  type PermissionRule,
  ruleBehind,
  subjectOf,
  withRealFolders,
} from './permission-rules.ts';

/** Answers the questions of agents: by rules, by what the call asked for, or by asking people. */
export interface Permissions {
  /** The questions of one turn. `end` cancels those that are open: call it when the turn is over, however it ended. */
  forTurn(turn: AskingTurn): Required<Pick<AgentTurn, 'ask' | 'asks' | 'deniedPaths'>> & { end(): void };
  /** Throws MCP_SERVER_REFUSED for servers that a session in that folder may not have. */
  checkServers(servers: readonly SessionMcpServer[], folder: string): void;
  list(
    principal: Principal,
    query: { readonly state?: 'open' | 'all'; readonly sessionKey?: string; readonly owner?: string },
  ): Promise<Permission[]>;
  /** The first answer wins. Throws PERMISSION_ANSWERED with the stored request, or PERMISSION_EXPIRED. */
  answer(principal: Principal, id: string, answer: PermissionAnswer): Promise<Permission>;
  rules(principal: Principal, owner: string | undefined): Promise<StoredRule[]>;
  removeRule(principal: Principal, id: string): Promise<void>;
  onChange(listener: (permission: Permission, sessionKey: string) => void): void;
  reload(settings: PermissionSettings): void;
  stop(): Promise<void>;
}

/** As the settings of the bridge have them. */
export interface PermissionSettings {
  readonly permissions: 'allow' | 'deny';
  readonly permission_rules: readonly {
    readonly when: { readonly kind: string; readonly command: readonly string[]; readonly path: string };
    readonly then: 'allow' | 'deny';
  }[];
  readonly permission_timeout: number;
}

interface PermissionsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  readonly instance: string;
  readonly lease: Pick<Lease, 'hasChanged'>;
  readonly settings: PermissionSettings;
  /** Posts an event to webhooks. Undefined: there are none. */
  readonly announce?: ((event: BridgeEvent) => void) | undefined;
}

interface Waiting {
  settle(reply: PermissionReply): void;
  cancel(): void;
}

/** A turn with more open questions than this gets no for an answer. */
const MAX_OPEN_OF_TURN = 64;
const MAX_LISTED = 200;
const NOT_ANSWERED: PermissionReply = { optionId: undefined };
/** The pause between two searches for answers that another instance has stored, and for requests of dead instances. */
const LOOK_PAUSE_MS = 1000;
const SWEEP_PAUSE_MS = 10 * 60_000;
/** The pause before an end that could not be stored is stored again. */
const RETRY_MS = 1000;

export async function createPermissions(options: PermissionsOptions): Promise<Permissions> {
  const { database, instance, clock, makeId, logger } = options;
  const store = createPermissionStore(database);
  const waiting = new Map<string, Waiting>();
  const underWay = new Set<Promise<void>>();
  const stopped = new AbortController();
  let isStopped = false;
  let { rules, timeoutMs } = readSettings(options.settings);
  const { permissions: policy } = options.settings;
  let changed: (permission: Permission, sessionKey: string) => void = () => undefined;

  const failed = (error: unknown) => logger.error({ err: error }, 'a permission request could not be stored');
  await store.cancelOrphans(instance, clock.now());

  /** Keeps work that no caller waits for; the stop of the bridge waits for it. */
  function keep(work: Promise<void>): void {
    const kept = work.catch(failed).finally(() => underWay.delete(kept));
    underWay.add(kept);
  }

  async function askPeople(turn: AskingTurn, ...[question, signal, asked]: Parameters<AskPermission>) {
    if (isStopped) return NOT_ANSWERED;
    const row = toRow(turn, question, makeId('perm_'), instance, clock.now(), timeoutMs);
    const { promise, resolve } = Promise.withResolvers<PermissionReply>();
    const inserted = database.write([store.insert(row)]);
    // Also when it is not known whether the request was stored, because no request may stay open without a turn that waits for it.
    const endLater = (state: 'expired' | 'cancelled') =>
      keep(inserted.then(noop, noop).then(() => endUnanswered(row.id, state)));
    const stopTimer = clock.after(timeoutMs, () => endLater('expired'));
    function settle(reply: PermissionReply): void {
      stopTimer();
      signal.removeEventListener('abort', cancel);
      waiting.delete(row.id);
      resolve(reply);
    }
    function cancel(): void {
      settle(NOT_ANSWERED);
      endLater('cancelled');
    }
    // Before the request is stored, because from then on it can be answered.
    waiting.set(row.id, { settle, cancel });
    signal.addEventListener('abort', cancel, { once: true });
    if (signal.aborted) cancel();
    try {
      await inserted;
    } catch (error) {
      if (waiting.has(row.id)) cancel();
      throw error;
    }
    if (waiting.has(row.id)) {
      changed(toView(row), row.session_key);
      asked?.(toAsked(row));
      options.announce?.(needsInput(row));
    }
    return { ...(await promise), permissionId: row.id };
  }

  /** Ends a request unless an answer was faster. While the store is unavailable, it retries until the bridge stops. */
  async function endUnanswered(id: string, state: 'expired' | 'cancelled'): Promise<void> {
    for (;;) {
      try {
        await database.write([store.end(id, { ...NO_ANSWER, state, answered_at: clock.now() })]).catch(unlessEnded);
        return await learn([id]);
      } catch (error) {
        failed(error);
        if (isStopped) return;
        await pause(clock, RETRY_MS, stopped.signal);
      }
    }
  }

  /** Reads how requests have ended, and continues the turns that wait for them here. */
  async function learn(ids: readonly string[]): Promise<void> {
    for (const row of await store.findAll(ids)) {
      if (row.state === 'open') continue;
      continueTurn(row);
      changed(toView(row), row.session_key);
    }
  }

  /** Continues the turn that waits for a request. Its values are then removed from the store, because they may be secrets. */
  function continueTurn(row: PermissionRow): void {
    const asking = waiting.get(row.id);
    asking?.settle(replyOf(row));
    // Another instance may wait for the values, where there can be others.
    const isTaken = asking !== undefined || database.engine !== 'postgres';
    if (row.given !== '' && isTaken) keep(store.taken(row.id));
  }

  async function rulesOf({ owner, sessionKey, folder }: AskingTurn): Promise<readonly NamedRule[]> {
    const stored = await store.rulesFor(owner, sessionKey, folder, clock.now());
    const all: readonly NamedRule[] = [...rules, ...stored.map((row) => ({ ...toRule(row), ruleId: row.id }))];
    return withRealFolders(all, folder);
  }

  async function answerQuestion(turn: AskingTurn, ...[question, signal, notify]: Parameters<AskPermission>) {
    const { folder, editor } = turn;
    const setting = settingOf(turn);
    const all = await rulesOf(turn);
    const asked = subjectOf(question, folder);
    const subject = all.some(({ path }) => path !== undefined) ? await followLinks(asked) : asked;
    const decision = decide(subject, all, setting);
    // Without a person, nobody gives values for a form, so the question is declined.
    const isForm = question.form !== undefined;
    const isAsked = !isForm ? decision === 'ask' : decision !== 'deny' && setting === 'ask';
    if (!isAsked) {
      const answer = decision === 'allow' ? 'allow' : 'deny';
      // No rule answers a form.
      const rule = isForm && answer === 'allow' ? undefined : ruleBehind(subject, all, answer);
      return replyByRule(optionFor(answer, question.options)?.optionId, rule);
    }
    return editor === undefined ? askPeople(turn, question, signal, notify) : editor(question, signal);
  }

  async function find(principal: Principal, id: string): Promise<PermissionRow> {
    const row = await store.find(id);
    if (row === undefined || !sees(principal, row.owner))
      throw new AppError('PERMISSION_NOT_FOUND', { permissionId: id });
    if (!may(principal, 'answer', row.owner)) throw new AppError('FORBIDDEN');
    return row;
  }

  function checkOpen(row: PermissionRow): void {
    if (isAnswered(row)) throw new AppError('PERMISSION_ANSWERED', { permission: toView(row) });
    const isLate = row.state === 'open' && row.expires_at <= clock.now();
    if (row.state !== 'open' || isLate) throw new AppError('PERMISSION_EXPIRED', { permissionId: row.id });
  }

  const repeated: Repeated[] = [
    repeat({
      clock,
      pauseMs: SWEEP_PAUSE_MS,
      work: () => store.removeOldRules(clock.now()),
      onError: (error) => logger.warn({ err: error }, 'old permission rules could not be deleted'),
    }),
  ];
  if (database.engine === 'postgres') {
    repeated.push(
      repeat({
        clock,
        pauseMs: LOOK_PAUSE_MS,
        work: () => learn([...waiting.keys()]),
        onError: (error) => logger.warn({ err: error }, 'answers to permission requests could not be read'),
      }),
      repeatAfterDeaths({
        clock,
        lease: options.lease,
        pauseMs: LOOK_PAUSE_MS,
        work: () => store.cancelOrphans(instance, clock.now()),
        onError: (error) => logger.warn({ err: error }, 'permission requests of dead bridges could not be cancelled'),
      }),
    );
  }

  return {
    forTurn(turn) {
      const ended = new AbortController();
      let open = 0;
      let isOver = false;
      return {
        asks: settingOf(turn) === 'ask',
        async deniedPaths(kinds, folder) {
          const all = await rulesOf(turn).catch((error: unknown) => {
            logger.error({ err: error }, 'permission rules could not be read');
            throw new AppError('TOOL_CALL_REFUSED', { reason: 'the permission rules cannot be read now; try again.' });
          });
          return deniedPaths(all, kinds, folder);
        },
        end() {
          isOver = true;
          // An abort creates an error with a stack, and most turns end without open requests.
          if (open > 0) ended.abort();
        },
        async ask(question, signal, asked) {
          if (isOver || open >= MAX_OPEN_OF_TURN) return NOT_ANSWERED;
          open += 1;
          const { signal: over, release } = joinSignals(signal, ended.signal);
          try {
            return await answerQuestion(turn, question, over, asked);
          } catch (error) {
            // A question that cannot be asked is denied.
            failed(error);
            return NOT_ANSWERED;
          } finally {
            open -= 1;
            release();
          }
        },
      };
    },
    async list(principal, { state = 'open', sessionKey, owner }) {
      if (owner !== undefined && !sees(principal, owner)) return [];
      const read = state === 'open' ? store.open : store.latest;
      const rows = await mergedPages(
        owner === undefined ? ownersSought(principal) : [owner],
        (one) => read(one, sessionKey, MAX_LISTED),
        { order: state === 'open' ? oldestFirst : newestFirst, limit: MAX_LISTED },
      );
      return rows.map(toView);
    },
    async answer(principal, id, answer) {
      const row = await find(principal, id);
      if (row.state !== 'open') continueTurn(row);
      checkOpen(row);
      const { id: by } = principal.member ?? principal;
      const asked = askedSubject(row);
      // Only what is remembered needs to know where paths lead; a disk that hangs does not hold up the other answers.
      const subject = isRemembered(answer) ? await followLinks(asked) : asked;
      const { end, rules: remembered } = endOf(row, answer, by, clock.now(), subject);
      const added = remembered.map((rule) =>
        store.addRule(toRuleRow(rule, row, end.scope, by, makeId('rule_'), clock.now())),
      );
      try {
        await database.write([store.end(id, end), ...added]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') checkOpen(await find(principal, id));
        // The answer may be stored although the store has failed, and nobody can give it again.
        else keep(learn([id]));
        throw error;
      }
      const ended = { ...row, ...end };
      continueTurn(ended);
      const view = toView(ended);
      changed(view, row.session_key);
      return view;
    },
    async rules(principal, owner) {
      if (owner !== undefined && !sees(principal, owner)) return [];
      const rules = await mergedPages(
        owner === undefined ? ownersSought(principal) : [owner],
        (one) => store.rules(one, clock.now(), MAX_LISTED),
        { order: newestFirst, limit: MAX_LISTED },
      );
      return rules.map(toStoredRule);
    },
    async removeRule(principal, id) {
      const rule = await store.findRule(id);
      if (rule === undefined || !sees(principal, rule.owner)) throw new AppError('PERMISSION_RULE_NOT_FOUND');
      if (!may(principal, 'answer', rule.owner)) throw new AppError('FORBIDDEN');
      await store.removeRule(id);
    },
    onChange(listener) {
      changed = listener;
    },
    checkServers(servers, folder) {
      for (const server of servers) {
        const { name, type } = server;
        if (policy === 'deny') throw serverRefused(name, 'agents may only read here (bridge.permissions is deny)');
        const command = type === 'stdio' ? [server.command, ...server.args] : [];
        const question = { toolCallId: '', title: name, toolKind: 'execute', options: [], input: { command } };
        if (type !== 'stdio' || decide(subjectOf(question, folder), rules, undefined) !== 'deny') continue;
        throw serverRefused(name, 'a rule of bridge.permission_rules denies its command');
      }
    },
    reload(next) {
      ({ rules, timeoutMs } = readSettings(next));
    },
    async stop() {
      isStopped = true;
      await Promise.all(repeated.map((one) => one.stop()));
      for (const { cancel } of [...waiting.values()]) cancel();
      stopped.abort();
      await Promise.all(underWay);
    },
  };
}

/** An editor is asked unless the call says otherwise. */
function settingOf({ setting, editor }: AskingTurn): AskingTurn['setting'] {
  return setting ?? (editor === undefined ? undefined : 'ask');
}

function serverRefused(name: string, reason: string): AppError {
  return new AppError('MCP_SERVER_REFUSED', { name, reason });
}

function readSettings({ permission_rules: given, permission_timeout: timeoutMs }: PermissionSettings) {
  const rules = given.map(
    ({ when: { kind, command, path }, then: decision }): PermissionRule => ({
      ...(kind !== '' && { kind }),
      ...(command.length > 0 && { command }),
      ...(path !== '' && { path }),
      decision,
    }),
  );
  return { rules, timeoutMs };
}

/** Ids sort by time. */
function oldestFirst(one: { readonly id: string }, other: { readonly id: string }): number {
  return one.id < other.id ? -1 : 1;
}

function newestFirst(one: { readonly id: string }, other: { readonly id: string }): number {
  return oldestFirst(other, one);
}

function noop(): void {}

function unlessEnded(error: unknown): void {
  if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
}
