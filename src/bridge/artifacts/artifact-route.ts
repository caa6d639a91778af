import { createReadStream } from 'node:fs';
import { basename } from 'node:path';
import { anyone, type Call, type Route } from '../../platform/http/surface.ts';

import type { BridgeCaller } from '../access.ts';
import type { Artifacts } from './create-artifacts.ts';

/** The download of a file that a turn produced (contract/bridge 1): the signature in the path is the credential. */
export function artifactRoute(artifacts: Pick<Artifacts, 'find'>): Route<BridgeCaller> {
  return {
    method: 'GET',
    path: '/artifacts/*',
    guard: anyone,
    summary: 'Downloads a file that a turn produced, by the link in its result.',
    async handle({ head, reply }: Call<BridgeCaller>) {
      const { row, file } = await artifacts.find(head.path);
      const name = basename(String(JSON.parse(row.relative_path)));
      reply.header('content-type', row.content_type);
      reply.header('content-length', row.size_bytes);
      reply.header('content-disposition', `attachment; filename*=UTF-8''${encodeName(name)}`);
      return reply.send(row.size_bytes === 0 ? '' : createReadStream(file, { end: row.size_bytes - 1 }));
    },
  };
}

/** RFC 8187: the characters that encodeURIComponent leaves and a header must not hold. */
function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replaceAll(/['()*]/g, (character) => {
    return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  });
}
