import type { Route } from '../../platform/http/surface.ts';
import { IssuedKey, KeyList, KeyListQuery, KeyPath, NewKey } from '../contract/keys.ts';
import type { KeyHolder } from './admission.ts';
import type { KeyAccess } from './key-access.ts';
import type { KeyRegister } from './key-register.ts';

/** The rows that manage keys, under both path families (contract/completions 6). */
export function keyRoutes(
  prefix: '' | '/v1',
  { access, register }: { readonly access: KeyAccess; readonly register: KeyRegister },
): readonly Route<KeyHolder>[] {
  const guard = access.withMasterKey;
  return [
    {
      method: 'POST',
      path: `${prefix}/keys`,
      guard,
      summary: 'Issue a key. It is shown this once.',
      body: 'json',
      schema: { body: NewKey, response: { 201: IssuedKey } },
      async handle({ body, caller, head, reply }) {
        const issued = await register.create(body as NewKey, { actor: caller.id, head });
        return reply.code(201).header('cache-control', 'no-store').send(issued);
      },
    },
    {
      method: 'GET',
      path: `${prefix}/keys`,
      guard,
      summary: 'List the issued keys.',
      schema: { query: KeyListQuery, response: { 200: KeyList } },
      handle: ({ query }) => register.list(query as KeyListQuery),
    },
    {
      method: 'DELETE',
      path: `${prefix}/keys/:id`,
      guard,
      summary: 'Revoke a key: it stops working at once.',
      schema: { params: KeyPath },
      handle: ({ params, caller, head }) => register.remove(params.id ?? '', undefined, { actor: caller.id, head }),
    },
  ];
}
