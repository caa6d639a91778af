import type { UsableApi } from '../../../../src/completions/apis/model-api.ts';
import type { PriceOf } from '../../../../src/completions/apis/prices.ts';
import type { KeyHolder } from '../../../../src/completions/keys/admission.ts';
import { createMeteredKeys, type MeteredKeys } from '../../../../src/completions/metered-keys.ts';
import { createChatPipeline } from '../../../../src/completions/operations/chat-pipeline.ts';
import { createOpenChat } from '../../../../src/completions/operations/open-chat.ts';
import type { RunChat } from '../../../../src/completions/operations/run-chat.ts';
import { createRunChat } from '../../../../src/completions/operations/run-chat.ts';
import { createAttemptCalls } from '../../../../src/completions/routing/attempt-call.ts';
import { createModelPlans } from '../../../../src/completions/routing/model-plan.ts';
import { createTargetBoard, type TargetBoard } from '../../../../src/completions/routing/target-board.ts';
import type { CompletionsSettings } from '../../../../src/completions/settings.ts';
import type { CompletionsSchema } from '../../../../src/completions/storage/completions-schema.ts';
import { createSendUpstream } from '../../../../src/completions/upstream/send-upstream.ts';
import type { UpstreamPools } from '../../../../src/completions/upstream/upstream-pools.ts';
import type { Clock } from '../../../../src/platform/clock/clock.ts';
import type { Randomness } from '../../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../../src/platform/database/database.ts';
import type { RequestHead } from '../../../../src/platform/http/surface.ts';
import type { MakeId } from '../../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../../src/platform/log/logger.ts';
import type { TryEvent } from './attempt-events.ts';

/** The completions service from its guard to its upstreams, which are played. */
export interface PlayedCompletions {
  readonly runChat: RunChat;
  readonly register: MeteredKeys['register'];
  holderOf(key: string): Promise<KeyHolder>;
  stop(): Promise<void>;
}

export interface PlayedCompletionsOptions {
  readonly database: Database<CompletionsSchema>;
  readonly models: CompletionsSettings['models'];
  readonly apis: readonly string[];
  readonly pools: UpstreamPools;
  readonly priceOf: PriceOf;
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  readonly logger: Logger;
  now(): number;
  note(event: TryEvent): void;
}

/** Puts the parts together in the order in which `createChatEngine` and `createCompletions` do. */
export function openPlayedCompletions(options: PlayedCompletionsOptions): PlayedCompletions {
  const { models, apis, pools, priceOf, clock, randomness, makeId, logger } = options;
  const keys = createMeteredKeys({
    ...options,
    settings: { master_key: 'the master key', store_content: false },
    usageRetentionMs: 0,
    otlpEndpoint: '',
    programVersion: '0',
  });
  const usable = new Map(apis.map((id) => [id, apiOf(id)]));
  const findApi = (id: string) => usable.get(id);
  const send = createSendUpstream({ pools, authorise: ({ headers }) => headers, clock });
  const plans = createModelPlans({
    settings: { models, apis: {}, timeouts: TIMEOUTS, model_patterns: {}, api_order: [] },
    findApi,
    knownNames: () => [],
    apisWith: () => [],
    missingFor: () => [],
  });
  const board = watched(createTargetBoard({ clock, onCircuit: () => undefined }), options);
  const openChat = createOpenChat({
    findApi,
    send,
    knownModel: () => undefined,
    clock,
    fetchLinkedFiles: async (request) => request,
  });
  const attemptCalls = createAttemptCalls({ plans, board, clock, randomness, onFailure: () => undefined });
  const pipeline = createChatPipeline({
    plans,
    attemptCalls,
    openChat,
    lanes: { serves: () => false, open: () => undefined },
    admissions: keys.admissions,
    priceOf,
    clock,
    makeId,
  });
  return {
    runChat: createRunChat(pipeline),
    register: keys.register,
    holderOf: async (key) => keys.access.withKey(headOf(key)),
    async stop() {
      logger.debug({}, 'stopping');
      await keys.stop();
    },
  };
}

const TIMEOUTS = { connect: 5000, first_byte: 6000, idle: 6000, total: 60_000 };

/** Notes what the board allows, and what it is told. */
function watched(board: TargetBoard, { now, note }: Pick<PlayedCompletionsOptions, 'now' | 'note'>): TargetBoard {
  let leases = 0;
  return {
    ...board,
    begin(target, tokens, use) {
      leases += 1;
      const known = { kind: 'try', target: target.id, lease: leases, ...use } as const;
      const begun = board.begin(target, tokens, use);
      if (begun.waitMs !== undefined) {
        note({ ...known, at: now(), mark: 'out' });
        return begun;
      }
      note({ ...known, at: now(), mark: 'begins' });
      return {
        answered() {
          note({ ...known, at: now(), mark: 'answered' });
          begun.answered();
        },
        end(result, used) {
          note({ ...known, at: now(), mark: result });
          begun.end(result, used);
        },
      };
    },
  };
}

function apiOf(id: string): UsableApi {
  const rest = { keyVariables: [], configured: true, responses: false, credentials: { key: 'a key of an API' } };
  return { id, name: id, dialect: 'openai', baseUrl: `http://${id}/v1`, ...rest };
}

function headOf(key: string): RequestHead {
  return {
    requestId: '',
    method: 'POST',
    path: '/v1/chat/completions',
    query: new URLSearchParams(),
    headers: { authorization: `Bearer ${key}` },
    address: '203.0.113.1',
    peerAddress: '203.0.113.1',
    secure: true,
  };
}
