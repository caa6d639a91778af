import type { Logger } from '../../platform/log/logger.ts';
import type { ProducedFile } from '../agents/agent-provider.ts';
import { asObject, textOf } from '../agents/loose-json.ts';
import { describeGatewayFailure } from './gateway-failure.ts';
import type { GatewayLink } from './gateway-link.ts';

const MOST_FILES = 10;
const MOST_BYTES = 64 * 1024 * 1024;
const LIST_MS = 10_000;
const DOWNLOAD_MS = 60_000;

/**
 * The files that the assistant delivered in a run. A gateway that does not know artifacts, or cannot hand one over, has
 * none for us: the answer of the task does not depend on them.
 */
export async function fetchGatewayArtifacts(
  link: Pick<GatewayLink, 'request'>,
  sessionKey: string,
  runId: string,
  logger: Pick<Logger, 'warn'>,
): Promise<readonly ProducedFile[]> {
  const scope = { sessionKey, runId, messageRole: 'assistant' };
  const files: ProducedFile[] = [];
  try {
    const { artifacts } = asObject(await link.request('artifacts.list', scope, LIST_MS));
    let room = MOST_BYTES;
    for (const artifact of (Array.isArray(artifacts) ? artifacts : []).slice(0, MOST_FILES)) {
      const { id, title, mimeType, sizeBytes } = asObject(artifact);
      if (textOf(id) === '' || (typeof sizeBytes === 'number' && sizeBytes > room)) continue;
      const loaded = asObject(await link.request('artifacts.download', { ...scope, artifactId: id }, DOWNLOAD_MS));
      if (loaded.encoding !== 'base64') continue;
      const bytes = Buffer.from(textOf(loaded.data), 'base64');
      if (bytes.length > room) continue;
      room -= bytes.length;
      files.push({ label: textOf(title) || textOf(id), contentType: textOf(mimeType), bytes });
    }
  } catch (error) {
    const { code } = describeGatewayFailure(error);
    if (code !== 'INVALID_REQUEST') logger.warn({ code }, 'files of a gateway task could not be fetched');
  }
  return files;
}
