import type { Readable, Writable } from 'node:stream';
import { createCompleteOverHttp } from '../bridge/agents/builtin/complete-over-http.ts';
import { createRemoteConnection } from '../bridge/agents/remote/remote-connection.ts';
import { offeredTools, serveTools } from '../bridge/tool-bridge/serve-tools.ts';
import { systemClock as clock } from '../platform/clock/clock.ts';
import { systemRandomness as randomness } from '../platform/clock/randomness.ts';
import { createSortableIds } from '../platform/ids/sortable-id.ts';
import type { Logger } from '../platform/log/logger.ts';
import { withoutSlash } from '../platform/network-address/ip-address.ts';
import { PROGRAM_VERSION } from './environment.ts';
import { listenAddress, type Settings } from './settings.ts';

export interface ToolsOptions {
  readonly settings: Settings;
  /** Of a running server. Undefined: where the settings say that it listens. */
  readonly url: string | undefined;
  /** Where its completions service is, when that is elsewhere. */
  readonly completionsUrl: string | undefined;
  readonly input: Readable;
  readonly output: Writable;
  readonly logger: Logger;
}

/** Runs the tool bridge: a client of a running server, with that server's tokens. Resolves when the agent has disconnected. */
export function startTools(options: ToolsOptions): Promise<void> {
  const { settings, input, output, logger } = options;
  const url = withoutSlash(options.url ?? ownUrl(settings));
  const completionsUrl = withoutSlash(options.completionsUrl ?? url);
  const tools = offeredTools({
    model: settings.agents.builtin.model,
    complete: createCompleteOverHttp({
      baseUrl: `${completionsUrl}/v1`,
      apiKey: settings.completions.master_key,
      clock,
      randomness,
    }),
    callBridge: createRemoteConnection({ url, token: settings.bridge.auth_token, clock, randomness }),
    makeId: createSortableIds(clock, randomness),
  });
  return serveTools({ tools, version: PROGRAM_VERSION, input, output, clock, logger });
}

function ownUrl(settings: Settings): string {
  const { host, port } = listenAddress(settings);
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
