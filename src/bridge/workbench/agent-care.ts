import { deadline, joinSignals } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { may, type Principal } from '../../platform/identity/principal.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentInstaller } from '../agents/agent-packages.ts';
import type { AgentProvider } from '../agents/agent-provider.ts';
import type { ProbeBoard } from '../agents/probe-board.ts';
import { NO_RESUME } from '../bridge-client.ts';
import type { SessionResult } from '../contract/session.ts';
import type { AgentLogin, AgentTest, InstalledAgent } from '../contract/surface.ts';
import type { SessionCalls } from '../sessions/session-calls.ts';
import type { NotificationSink } from '../sessions/update-hub.ts';

/** Tests, installs and logs in to agents: `POST /api/bridge/agents/:providerId/test`, `install` and `login`. */
export interface AgentCare {
  /** Runs one turn in a session of the caller, which is closed again. */
  test(principal: Principal, providerId: string): Promise<AgentTest>;
  /** Installs an agent of the table with npm. Throws AGENT_UNKNOWN, AGENT_INSTALLING, NPM_FAILED. */
  install(principal: Principal, providerId: string): Promise<InstalledAgent>;
  /** Logs in to an agent of the catalog, or says what to run. */
  logIn(principal: Principal, providerId: string, methodId: string | undefined): Promise<AgentLogin>;
  stop(): void;
}

export interface AgentCareOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly probes: Pick<ProbeBoard, 'lookNow'>;
  readonly sessionCalls: Pick<SessionCalls, 'turn' | 'cancel' | 'close'>;
  readonly installer: AgentInstaller;
}

/** The response to a request that takes longer would be lost: clients and proxies wait for five minutes. */
const MAX_INSTALL_MS = 4 * 60_000;
const MAX_LOGIN_MS = 2 * 60_000;
const MAX_TEST_MS = 2 * 60_000;
const TEST_PROMPT = 'Say OK';
const MAX_OUTPUT = 1000;

export function createAgentCare(options: AgentCareOptions): AgentCare {
  const { providers, probes, sessionCalls, clock, makeId } = options;
  const stopped = new AbortController();
  const loggingIn = new Set<string>();

  function providerOf(providerId: string): AgentProvider {
    const provider = providers.get(providerId);
    if (provider !== undefined) return provider;
    throw new AppError('AGENT_UNKNOWN', { agent: providerId.slice(0, 100), known: [...providers.keys()].join(', ') });
  }

  /** Runs work that stops with this program or with the login of the caller. Throws UNAUTHORIZED when the login has ended. */
  async function during<T>({ credential }: Principal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const revoked = new AbortController();
    const forget = credential?.onEnd(() => revoked.abort());
    const { signal, release } = joinSignals(stopped.signal, revoked.signal);
    try {
      const result = await work(signal);
      // Work that was stopped may return what it knows rather than throw.
      if (revoked.signal.aborted) throw new AppError('UNAUTHORIZED');
      return result;
    } catch (error) {
      throw revoked.signal.aborted ? new AppError('UNAUTHORIZED') : error;
    } finally {
      forget?.();
      release();
    }
  }

  return {
    async test(principal, providerId) {
      if (!may(principal, 'start', principal.id)) throw new AppError('FORBIDDEN');
      providerOf(providerId);
      const startedAt = clock.monotonic();
      const since = () => Math.round(clock.monotonic() - startedAt);
      let firstMs: number | undefined;
      const sessionId = makeId('agent-test-');
      const call = {
        params: undefined,
        id: sessionId,
        caller: {
          caller: { principal },
          sink: watchFor('"type":"delta"', () => {
            firstMs ??= since();
          }),
          stays: false,
          resume: NO_RESUME,
        },
        signal: stopped.signal,
        requestId: sessionId,
        notify: () => undefined,
        accept: () => undefined,
      };
      const routing = { routingMode: 'explicit', explicitProviderId: providerId } as const;
      const limit = deadline(clock, MAX_TEST_MS, [stopped.signal]);
      const onLimit = () =>
        void sessionCalls.cancel({ sessionId }, { ...call, method: 'session.cancel' }).catch(ignore);
      limit.signal.addEventListener('abort', onLimit, { once: true });
      try {
        const params = { sessionId, taskPrompt: TEST_PROMPT, routing };
        const answer = await sessionCalls.turn('session.start', params, { ...call, method: 'session.start' });
        const { status, output, error = '', unavailableMessage = '', code = '' } = readResult(answer);
        const durationMs = since();
        const problem = limit.hasPassed()
          ? `the turn took longer than ${MAX_TEST_MS / 1000} seconds`
          : error || unavailableMessage;
        return {
          providerId,
          status,
          output: output.slice(0, MAX_OUTPUT),
          error: problem,
          code,
          firstMs: firstMs ?? durationMs,
          durationMs,
        };
      } finally {
        limit.release();
        await sessionCalls.close({ sessionId }, { ...call, method: 'session.close' }).catch(ignore);
      }
    },
    async install(principal, providerId) {
      const version = await during(principal, (signal) =>
        options.installer.install(providerId, { timeoutMs: MAX_INSTALL_MS, signal }),
      );
      const isOffered = providers.has(providerId);
      if (isOffered) probes.lookNow(providerId);
      return { providerId, version, offered: isOffered };
    },
    async logIn(principal, providerId, methodId) {
      const { logIn } = providerOf(providerId);
      if (logIn === undefined) {
        throw new AppError('AGENT_WITHOUT_LOGIN', { agent: providerId, reason: 'it has no login of its own' });
      }
      if (loggingIn.has(providerId)) throw new AppError('AGENT_LOGGING_IN', { agent: providerId });
      loggingIn.add(providerId);
      try {
        const report = await during(principal, async (signal) => {
          const limit = deadline(clock, MAX_LOGIN_MS, [signal]);
          return logIn(methodId, limit.signal).finally(limit.release);
        });
        probes.lookNow(providerId);
        return { providerId, ...report, methods: [...report.methods] };
      } finally {
        loggingIn.delete(providerId);
      }
    },
    stop: () => stopped.abort(),
  };
}

function readResult(answer: SessionResult | RawJson): SessionResult {
  return 'text' in answer && typeof answer.text === 'string' ? JSON.parse(answer.text) : (answer as SessionResult);
}

/** A client that calls `found` for each update that contains a text. */
function watchFor(sought: string, found: () => void): NotificationSink {
  return {
    update({ text }) {
      if (text.includes(sought)) found();
    },
    isBehind: () => false,
    drained: async () => true,
    lost: () => undefined,
  };
}

function ignore(): void {
  // The session may never have been opened.
}
