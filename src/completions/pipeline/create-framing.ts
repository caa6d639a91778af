import { loadFrameReader } from '../dialects/bedrock/frame-reader.ts';
import type { Dialect } from '../dialects/dialect.ts';
import type { EventFraming } from './chunk-reader.ts';
import { createSseFraming } from './sse-framing.ts';

/** The codec of AWS's framing is loaded with its first use. */
export async function createFraming(framing: Dialect['framing'], maxEventBytes?: number): Promise<EventFraming> {
  return framing === 'sse' ? createSseFraming(maxEventBytes) : (await loadFrameReader())();
}
