import { type Call, type RequestHead, type Route, defineRoute as row } from '../platform/http/surface.ts';
import type { Catalogue } from './apis/catalogue.ts';
import { apiStatus, createModelViews, type Models } from './apis/models.ts';
import type { GeminiModelsQuery } from './contract/gemini.ts';
import { mediaOperations as media } from './contract/media.ts';
import { storedOperations as kept, completionsOperations as op } from './contract/operations.ts';
import type { createIngress } from './ingress/create-ingress.ts';
import type { createGemini } from './ingress/gemini/create-gemini.ts';
import type { KeyHolder } from './keys/admission.ts';
import { ownerOnly, ownOnly } from './keys/key-register.ts';
import type { MeteredKeys } from './metered-keys.ts';
import type { PathFamily } from './operations/chat-handler.ts';
import type { createMediaHandler } from './operations/media-handler.ts';
import { mediaKinds as kinds } from './operations/media-requests.ts';
import type { createStoredObjects } from './operations/stored-objects.ts';
import { createTargetView, type TargetViewOptions } from './routing/target-board.ts';

type Handler = (call: Call<KeyHolder, Buffer>) => Promise<unknown>;

export interface RouteParts extends Pick<MeteredKeys, 'access' | 'register' | 'report' | 'calls'>, TargetViewOptions {
  readonly models: Models;
  readonly catalogue: Pick<Catalogue, 'date'>;
  readonly chat: (family: PathFamily) => Handler;
  readonly text: (family: PathFamily) => Handler;
  readonly embeddings: Handler;
  readonly media: ReturnType<typeof createMediaHandler>;
  readonly stored: ReturnType<typeof createStoredObjects>;
  readonly ingress: ReturnType<typeof createIngress>;
  readonly gemini: ReturnType<typeof createGemini>;
  /** The largest body of a call to a model: attachments travel inline in messages. */
  readonly bodyLimit: number;
}

/**
 * THE TABLE of completions: path, guard, operation, handler. The first rows are served as the
 * document has them, and under `/v1` as OpenAI has them.
 */
export function completionsRoutes(parts: RouteParts): readonly Route[] {
  const {
    access,
    models,
    chat,
    text,
    embeddings,
    media: run,
    stored,
    ingress,
    gemini,
    register,
    report,
    calls,
    bodyLimit,
  } = parts;
  const { withKey, withMasterKey, withOwnKeys, withOperator } = access;
  const views = createModelViews(models);
  const listTargets = createTargetView(parts);
  const inBothFamilies = (['', '/v1'] as const).flatMap((prefix) => {
    const family = prefix === '' ? 'document' : 'openai';
    return [
      row(`POST ${prefix}/chat/completions`, withKey, op.createChat, chat(family)),
      row(`POST ${prefix}/completions`, withKey, op.completeText, text(family)),
      row(`GET ${prefix}/models`, withKey, op.listModels, ({ caller, head }) =>
        asksAsGoogle(head) ? gemini.list({ caller, query: pageOf(head) }) : views.list(prefix, caller),
      ),
      // Ids have slashes in them, plain or encoded.
      row(`GET ${prefix}/models/*`, withKey, op.showModel, ({ caller, params, head }) =>
        asksAsGoogle(head) ? gemini.show({ caller, params }) : views.show(prefix, params['*'], caller),
      ),
      row(`POST ${prefix}/keys`, withMasterKey, op.issueKey, ({ body, caller, head }) =>
        register.create(body, { actor: caller.id, head }),
      ),
      row(`GET ${prefix}/keys`, withOwnKeys, op.listKeys, ({ query, caller }) => register.list(ownOnly(query, caller))),
      row(`PATCH ${prefix}/keys/:id`, withOwnKeys, op.changeKey, ({ params, body, caller, head }) =>
        register.change(params.id, body, ...ownerOnly(caller, head)),
      ),
      // People rotate their keys at `/api/auth/keys`, which asks for a fresh login: the answer has a secret in it.
      row(`POST ${prefix}/keys/:id/rotate`, withMasterKey, op.rotateKey, ({ params, body, caller, head }) =>
        register.rotate(params.id, body, ...ownerOnly(caller, head)),
      ),
      row(`DELETE ${prefix}/keys/:id`, withOwnKeys, op.revokeKey, ({ params, caller, head }) =>
        register.remove(params.id, ...ownerOnly(caller, head)),
      ),
      row(`GET ${prefix}/usage`, withKey, op.reportUsage, ({ caller, query }) => report(caller, query)),
      row(`GET ${prefix}/usage/calls`, withKey, op.listCalls, ({ caller, query }) => calls.list(caller, query)),
      row(`GET ${prefix}/usage/calls/:id`, withKey, op.showCall, ({ caller, params }) => calls.find(caller, params.id)),
    ];
  });
  return [
    ...inBothFamilies,
    row('GET /v1/apis', withOperator, op.listApis, async () => ({
      object: 'list' as const,
      data: apiStatus(models),
      prices_date: parts.catalogue.date(),
    })),
    row('GET /v1/targets', withKey, op.listTargets, async ({ caller }) => listTargets(caller)),
    row('POST /v1/embeddings', withKey, op.embed, embeddings),
    row('POST /v1/images/generations', withKey, media.createImage, run(kinds.createImage)),
    row('POST /v1/images/edits', withKey, media.editImage, run(kinds.editImage)),
    row('POST /v1/audio/speech', withKey, media.speak, run(kinds.speak)),
    row('POST /v1/audio/transcriptions', withKey, media.transcribe, run(kinds.transcribe)),
    row('POST /v1/audio/translations', withKey, media.translate, run(kinds.translate)),
    row('POST /v1/moderations', withKey, media.moderate, run(kinds.moderate)),
    row('POST /v1/rerank', withKey, media.rerank, run(kinds.rerank)),
    row('POST /v1/files', withKey, kept.uploadFile, stored.uploadFile),
    row('GET /v1/files', withKey, kept.listFiles, stored.listFiles),
    row('GET /v1/files/:id', withKey, kept.showFile, stored.showFile),
    row('DELETE /v1/files/:id', withKey, kept.deleteFile, stored.deleteFile),
    row('GET /v1/files/:id/content', withKey, kept.readFile, stored.readFile),
    row('POST /v1/batches', withKey, kept.createBatch, stored.createBatch),
    row('GET /v1/batches', withKey, kept.listBatches, stored.listBatches),
    row('GET /v1/batches/:id', withKey, kept.showBatch, stored.showBatch),
    row('POST /v1/batches/:id/cancel', withKey, kept.cancelBatch, stored.cancelBatch),
    row('POST /v1/responses', withKey, op.createResponse, ingress.createResponse),
    row('POST /v1/messages', withKey, op.createMessage, ingress.createMessage),
    row('POST /v1/messages/count_tokens', withKey, op.countTokens, ingress.countTokens),
    // The operation stands after the last colon of the path.
    row('POST /v1beta/models/*', withKey, op.callGemini, gemini.call),
    row('POST /v1/models/*', withKey, op.callGemini, gemini.call),
    row('GET /v1beta/models', withKey, op.listGeminiModels, gemini.list),
    row('GET /v1beta/models/*', withKey, op.showGeminiModel, gemini.show),
  ].map((route) => (route.body === 'bytes' ? { ...route, bodyLimit } : route));
}

/** Google's libraries read lists of models in another form than OpenAI's, at the same address. */
function asksAsGoogle({ path, headers }: RequestHead): boolean {
  return headers['x-goog-api-key'] !== undefined && path.startsWith('/v1/');
}

function pageOf({ query }: RequestHead): GeminiModelsQuery {
  const [size, token] = [Number(query.get('pageSize') ?? ''), query.get('pageToken')];
  return {
    ...(size >= 1 && { pageSize: Math.min(Math.floor(size), 1000) }),
    ...(token !== null && { pageToken: token }),
  };
}
